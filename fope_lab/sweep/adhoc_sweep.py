"""A sweep that a command makes of its arguments, instead of one that a file holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fope_lab.atomic_files import write_atomic
from fope_lab.config.yaml_document import Document
from fope_lab.model.huggingface.names import PREFIX
from fope_lab.sweep import Sweep, SweepError, parse_sweep
from fope_lab.sweep.keys import digest

DIGITS = 8
"""Of the content's hash, in the name of a sweep that is given none."""


def make_sweep(command: str, name: str | None, content: Mapping[str, Any]) -> tuple[Sweep, str]:
    """The sweep with this content beside its name, and its YAML.

    Relative paths start from the current folder. Without a name it gets the command's with a hash
    of the content, so that the same arguments give the same sweep. Raises SweepError, which names
    the command and the fields, for there is no file.
    """
    named = {"name": name or f"{command}-{digest(content)[:DIGITS]}", **content}
    text = yaml.safe_dump(named, sort_keys=False, allow_unicode=True)
    try:
        return parse_sweep(text, Path.cwd() / f"fope-lab {command}"), text
    except SweepError as error:
        where = Path(f"fope-lab {command}")
        raise SweepError(
            replace(one, path=one.path[one.path[:1] == ("stages",) :], file=where, line=None)
            for one in error.problems
        ) from None


def keep_sweep(sweep: Sweep, text: str, store: Path) -> Path:
    """Write the sweep's YAML into the store, for whoever wants to run it again; returns where."""
    path = store / "made" / f"{sweep.name}.yaml"
    note = f"# Paths are relative to {sweep.path.parent}, where {sweep.path.name} was run.\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, note + text)
    return path


def as_reference(checkpoint: str) -> str:
    """A checkpoint as a sweep's `from` names it: a bare word, which there is a stage's name, is a
    folder here."""
    is_word = "/" not in checkpoint and "#" not in checkpoint and not checkpoint.startswith(PREFIX)
    return f"./{checkpoint}" if is_word else checkpoint


def parse_argument(text: str, flag: str) -> Any:
    """An argument as a sweep file would read it: `6e-4` is a number. Raises SweepError."""
    return Document(Path(flag), text).value
