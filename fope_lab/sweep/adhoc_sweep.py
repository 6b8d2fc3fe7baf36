"""Ad-hoc sweeps: a command makes them from its arguments instead of reading a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fope_lab.atomic_files import write_atomic
from fope_lab.config.problems import FieldPath
from fope_lab.config.yaml_document import Document
from fope_lab.model.huggingface.names import PREFIX
from fope_lab.store import Store
from fope_lab.sweep import Sweep, SweepError, parse_sweep
from fope_lab.sweep.keys import digest

DIGITS = 8
"""How many digits of the content's hash are in the name of a sweep without a given name."""


def adhoc_sweep(
    command: str, name: str | None, content: Mapping[str, Any], store: Store | None = None
) -> tuple[Sweep, str]:
    """The sweep with this content, and its YAML text; `store` is that of load_sweep.

    Relative paths start from the current folder. Without a name the sweep is named after the
    command and a hash of the content, so that the same arguments give the same sweep. Raises
    SweepError, whose problems name the command instead of a file.
    """
    named = {"name": name or f"{command}-{digest(content)[:DIGITS]}", **content}
    text = yaml.safe_dump(named, sort_keys=False, allow_unicode=True)
    try:
        return parse_sweep(text, Path.cwd() / f"fope-lab {command}", store), text
    except SweepError as error:
        where = Path(f"fope-lab {command}")
        problems = (
            replace(problem, path=_without_stages(problem.path), file=where, line=None)
            for problem in error.problems
        )
        raise SweepError(problems) from None


def _without_stages(path: FieldPath) -> FieldPath:
    return path[1:] if path[:1] == ("stages",) else path


def save_sweep(sweep: Sweep, text: str, store: Path) -> Path:
    """Write the sweep's YAML text into the store, so that it can be run again; returns its path."""
    path = store / "adhoc" / f"{sweep.name}.yaml"
    note = f"# Paths are relative to {sweep.path.parent}, where {sweep.path.name} was run.\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, note + text)
    return path


def as_reference(checkpoint: str) -> str:
    """A checkpoint as a sweep's `from` names it.

    A bare word, which would be a stage's name there, is a folder on the command line.
    """
    is_word = "/" not in checkpoint and "#" not in checkpoint and not checkpoint.startswith(PREFIX)
    return f"./{checkpoint}" if is_word else checkpoint


def parse_argument(text: str, flag: str) -> Any:
    """The value of an argument, read as in a sweep file: `6e-4` is a number. Raises SweepError."""
    return Document(Path(flag), text).value
