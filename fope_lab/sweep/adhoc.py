"""Sweeps that a command makes of its arguments: `evaluate`, `analyze`, and a file by `new`."""

from __future__ import annotations

import glob
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from fope_lab.config.atomic_files import write_atomic
from fope_lab.config.problems import ConfigError, did_you_mean, name_list, shown
from fope_lab.config.yaml_document import Document
from fope_lab.data.corpora.files import Files
from fope_lab.data.problems import DataError
from fope_lab.model.hub import PREFIX
from fope_lab.stages.base import FILE_KINDS, STAGE_TYPES
from fope_lab.stages.key import digest
from fope_lab.store.root import Store
from fope_lab.sweep import Problem, Sweep, SweepError, parse_sweep

DIGITS = 8
"""How many digits of the content's hash are in the name of a sweep without a given name."""


def adhoc_sweep(
    command: str, name: str | None, content: Mapping[str, Any], store: Store | None = None
) -> tuple[Sweep, str]:
    """Return the sweep with this content, and its YAML text; `store` is that of load_sweep.
    Relative paths start from the current folder. A sweep without a name is named by a hash of its
    content. Raises SweepError, whose problems name the command instead of a file."""
    named = {"name": name or f"{command}-{digest(content)[:DIGITS]}", **content}
    text = yaml.safe_dump(named, sort_keys=False, allow_unicode=True)
    try:
        return parse_sweep(text, Path.cwd() / f"fope-lab {command}", store), text
    except SweepError as error:
        raise SweepError(
            replace(
                problem,
                path=problem.path[problem.path[:1] == ("stages",) :],
                file=Path(f"fope-lab {command}"),
                line=None,
            )
            for problem in error.problems
        ) from None


def save_sweep(sweep: Sweep, text: str, store: Path) -> Path:
    """Write the sweep's YAML text into the store, so that it can be run again; returns its path."""
    path = store / "adhoc" / f"{sweep.name}.yaml"
    note = f"# Paths are relative to {sweep.path.parent}, where {sweep.path.name} was run.\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, note + text)
    return path


def as_reference(checkpoint: str) -> str:
    """A checkpoint as a sweep's `from` names it. A bare word, which would be a stage's name there,
    is a folder on the command line."""
    is_word = "/" not in checkpoint and "#" not in checkpoint and not checkpoint.startswith(PREFIX)
    return f"./{checkpoint}" if is_word else checkpoint


def parse_argument(text: str, flag: str) -> Any:
    """The value of an argument, read as in a sweep file: `6e-4` is a number. Raises SweepError."""
    return Document(Path(flag), text).value


TASKS_FLAG, EMBEDDING_FLAG = "--tasks", "--embedding"
SAID_ELSEWHERE = {"kind": "it is the name before the colon", "from": "CHECKPOINT says it"}
"""The fields of a stage that a task can't set, and where they come from instead."""


def evaluation_content(
    checkpoints: Sequence[str],
    tasks: Sequence[str],
    lengths: Sequence[int] | None,
    gpus: float,
    embeddings: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the content of a sweep in which every checkpoint is measured by every task.

    A task is a kind's name, the name of a task of a kind (`hellaswag`), or `kind: {field: value}`
    with the fields of a sweep file; tasks of the same kind become one stage. `lengths` apply to
    every kind that has lengths and does not set its own, and each of `embeddings`, written as in a
    sweep file, takes the place of a checkpoint's own. Raises SweepError, also if `lengths` have no
    effect.
    """
    fields = {
        "from": list(map(as_reference, checkpoints)),
        "embedding": [parse_argument(text, EMBEDDING_FLAG) for text in embeddings],
    }
    stages: dict[str, dict[str, Any]] = {}
    for text in tasks:
        for kind, section in _sections(text):
            if kind in stages:
                _merge(stages[kind], section)
            else:
                stages[kind] = {"kind": kind, **section}
    if lengths:
        without = [section for section in stages.values() if "lengths" not in section]
        without = [s for s in without if "lengths" in FILE_KINDS.entry(s["kind"]).options]
        if not without:
            message = "has no effect: the tasks have no lengths, or say them themselves"
            raise _wrong("--lengths", message)
        for section in without:
            section["lengths"] = list(lengths)
    # Every combination of the values, as one axis that all stages share; a section keeps its own.
    rows = list(itertools.product(*(values for values in fields.values() if values)))
    axes: dict[str, list[Any]] = {}
    for kind, section in stages.items():
        if gpus:
            section.setdefault("resources", {"gpus": gpus})
        for i, name in enumerate(name for name, values in fields.items() if values):
            if len(fields[name]) == 1:
                section.setdefault(name, fields[name][0])
            elif name not in section:
                axes[f"{kind}.{name}"] = [row[i] for row in rows]
    return {"stages": stages, **({"zip": axes} if axes else {})}


def analysis_content(
    text: str, checkpoints: Sequence[str], corpus: str | None, gpus: float
) -> dict[str, Any]:
    """Return the content of a sweep that runs an analysis on every checkpoint, or without any.
    `text` is the name of an analysis or '{type: name, option: value}'; `corpus` is written as in a
    sweep file. Raises ConfigError for an unknown analysis or option, and SweepError."""
    analysis = parse_argument(text, "NAME")
    # The analysis first, because names are misspelt most often.
    FILE_KINDS.entry("analysis").values({"analysis": analysis})
    section: dict[str, Any] = {"kind": "analysis", "analysis": analysis}
    if corpus is not None:
        section["corpus"] = parse_argument(corpus, "--corpus")
    if gpus:
        section["resources"] = {"gpus": gpus}
    references = list(map(as_reference, checkpoints))
    if len(references) == 1:
        [section["from"]] = references
    grid = {"grid": {"analysis.from": references}} if len(references) > 1 else {}
    return {"stages": {"analysis": section}, **grid}


def _sections(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the kinds that an argument asks for, each with its fields, once for each task."""
    value = parse_argument(text, TASKS_FLAG)
    tasks_of = {
        name: kind.task_names() for name, kind in STAGE_TYPES.all().items() if kind.measures_model
    }
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, dict):
        raise _wrong(TASKS_FLAG, f"found {shown(value)}, needs a task, or 'kind: {{field: value}}'")
    for name, given in value.items():
        section = {} if given is None else given
        if not isinstance(section, dict):
            raise _wrong(
                TASKS_FLAG, f"found {shown(section)} for {name}, needs a mapping of its fields"
            )
        for field in SAID_ELSEWHERE.keys() & section:
            raise _wrong(TASKS_FLAG, f"{name}.{field} is not given here: {SAID_ELSEWHERE[field]}")
        owners = [kind for kind, tasks in tasks_of.items() if name in tasks]
        if name in tasks_of:
            yield name, dict(section)
        elif len(owners) == 1:
            if "tasks" in section:
                message = f"{name} is a task, which has no tasks; write '{owners[0]}: {{tasks: …}}'"
                raise _wrong(TASKS_FLAG, message)
            yield owners[0], {"tasks": [name], **section}
        elif owners:
            choices = " or ".join(f"'{kind}: {{tasks: [{name}]}}'" for kind in owners)
            raise _wrong(TASKS_FLAG, f"{name} is a task of {' and '.join(owners)}; write {choices}")
        else:
            near = did_you_mean(name, [*tasks_of, *itertools.chain(*tasks_of.values())])
            with_tasks = name_list(kind for kind, tasks in tasks_of.items() if tasks)
            allowed = f"{name_list(tasks_of)}, and the tasks of {with_tasks}"
            raise _wrong(TASKS_FLAG, f"unknown task {shown(name)}{near} (allowed: {allowed})")


def _merge(known: dict[str, Any], section: Mapping[str, Any]) -> None:
    """Add the tasks of a section of the same kind; its other fields must be equal, since those of a
    task must not apply to another."""
    kind, tasks = known["kind"], [known.get("tasks"), section.get("tasks")]
    same = {**known, "tasks": None} == {"kind": kind, **section, "tasks": None}
    if not same or not all(isinstance(each, list) for each in tasks):
        message = f"{kind} is given twice with different fields; give it once: '{kind}: {{…}}'"
        raise _wrong(TASKS_FLAG, message)
    known["tasks"] = [task for each in tasks for task in each or ()]


def _wrong(argument: str, message: str) -> SweepError:
    return SweepError(Problem((argument,), message))


LENGTHS: tuple[int, ...] = (32, 64, 128, 256, 512)
"""The context lengths that are evaluated, as far as the text is long enough."""
TRAINED = 64
SMALL_TEXT = 50_000_000
"""How many bytes of a text are looked at: the held-out part of more is long enough."""
DEFAULT_CORPUS = "python-docs"


def write_new_sweep(path: Path, text: Sequence[str]) -> Sweep:
    """Write a sweep file for text files or patterns, or for Python's documentation. Raises
    SweepError if `path` exists or can't be written, or if the text can't be used."""
    from jinja2 import Template

    there = _wrong("NAME", f"{path} is already there; choose another name")
    if path.suffix != ".yaml":
        needs = "a name that ends in .yaml, such as books.yaml"
        raise _wrong("NAME", f"found {str(path)!r}, needs {needs}")
    if path.exists():
        raise there
    if not path.parent.is_dir():
        raise _wrong("NAME", f"{path.parent} is not a folder")
    lengths, data, corpus = LENGTHS, f"corpus: {DEFAULT_CORPUS}", DEFAULT_CORPUS
    if text:
        lengths, first = _lengths(text), Path(text[0])
        pattern = str(first.with_name(f"*{first.suffix}"))  # that a shell may have made files of
        if len(text) > 1 and first.suffix and sorted(glob.glob(pattern)) == sorted(text):
            text = [pattern]
        places = [os.path.expanduser(place) for place in text]
        places = [p if os.path.isabs(p) else os.path.relpath(p, path.parent) for p in places]
        names = json.dumps(places if len(places) > 1 else places[0], ensure_ascii=False)
        data, corpus = f"files: {names}", f"{{files: {names}}}"
    template = (resources.files("fope_lab.sweep") / "new.yaml.j2").read_text("utf-8")
    content = Template(template, keep_trailing_newline=True).render(
        name=path.stem,
        file=path,
        data=f"{{{data}, length: {TRAINED}}}",
        corpus=corpus,
        trained=TRAINED,
        lengths=list(lengths),
        longest=lengths[-1],
    )
    sweep = parse_sweep(content, path)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        raise there from None
    except OSError as error:
        raise _wrong("NAME", f"{path} can't be written: {error.strerror}") from error
    return sweep


def _lengths(text: Sequence[str]) -> tuple[int, ...]:
    """The lengths, in bytes, that the held-out text is long enough for."""
    try:
        files = Files(files=tuple(text)).resolved(Path.cwd())
        files.check()
        if sum(map(os.path.getsize, files.local_files())) > SMALL_TEXT:
            return LENGTHS
        held_out = sum(len(part.encode()) for part in files.documents("validation"))
    except ConfigError as error:
        raise SweepError(Problem(("--text",), p.message) for p in error.problems) from error
    except DataError as error:
        raise _wrong("--text", str(error)) from error
    lengths = tuple(takewhile(lambda length: 2 * length < held_out, LENGTHS))
    if TRAINED not in lengths:
        raise _wrong(
            "--text",
            f"the text is too short: {held_out} bytes of it would be held out from training,"
            f" and more than {2 * TRAINED} are needed; give more text, in several paragraphs",
        )
    return lengths
