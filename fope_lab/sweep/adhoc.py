"""Sweeps that a command makes of its arguments: evaluations and analyses of checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fope_lab.analysis import parse_analysis
from fope_lab.atomic_files import write_atomic
from fope_lab.config.problems import did_you_mean, name_list, shown
from fope_lab.config.yaml_document import Document
from fope_lab.evaluation.base import ModelEvaluation
from fope_lab.model.hub import PREFIX
from fope_lab.stages.base import STAGE_TYPES
from fope_lab.stages.key import digest
from fope_lab.store import Store
from fope_lab.sweep import Problem, Sweep, SweepError, parse_sweep
from fope_lab.sweep.kinds import FILE_KINDS

DIGITS = 8
"""How many digits of the content's hash are in the name of a sweep without a given name."""


def adhoc_sweep(
    command: str, name: str | None, content: Mapping[str, Any], store: Store | None = None
) -> tuple[Sweep, str]:
    """Return the sweep with this content, and its YAML text; `store` is that of load_sweep.

    Relative paths start from the current folder. Without a name the sweep is named after the
    command and a hash of the content: the same arguments give the same sweep. Raises SweepError,
    whose problems name the command instead of a file.
    """
    named = {"name": name or f"{command}-{digest(content)[:DIGITS]}", **content}
    text = yaml.safe_dump(named, sort_keys=False, allow_unicode=True)
    try:
        return parse_sweep(text, Path.cwd() / f"fope-lab {command}", store), text
    except SweepError as error:
        where = Path(f"fope-lab {command}")
        problems = (
            replace(p, path=p.path[p.path[:1] == ("stages",) :], file=where, line=None)
            for p in error.problems
        )
        raise SweepError(problems) from None


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


ANALYSIS = "analysis"
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
    every kind that has lengths and does not set its own. With `embeddings`, written as in a sweep
    file, every checkpoint is measured with each of them in place of its own. Raises SweepError,
    also if `lengths` have no effect.
    """
    replacements = [parse_argument(text, EMBEDDING_FLAG) for text in embeddings]
    stages: dict[str, dict[str, Any]] = {}
    for text in tasks:
        for kind, section in _sections(text):
            if kind in stages:
                _merge(stages[kind], section)
            else:
                stages[kind] = {"kind": kind, **section}
    without = [s for name, s in stages.items() if _has(name, "lengths") and "lengths" not in s]
    if lengths and not without:
        message = "has no effect: the tasks have no lengths, or say them themselves"
        raise SweepError(Problem(("--lengths",), message))
    for section in without if lengths else ():
        section["lengths"] = [*(lengths or ())]
    for section in stages.values() if gpus else ():
        section.setdefault("resources", {"gpus": gpus})
    fields = {"from": list(map(as_reference, checkpoints)), "embedding": replacements}
    return {"stages": stages, **_axes(stages, fields)}


def _axes(
    stages: Mapping[str, dict[str, Any]], fields: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """Return the axes over fields that all stages share: every combination of their values.

    A field with one value is set in the stages instead. A stage that sets a field keeps its value.
    """
    several = {name: values for name, values in fields.items() if len(values) > 1}
    rows = list(itertools.product(*several.values()))
    axes = {
        f"{stage}.{name}": [row[i] for row in rows]
        for stage, section in stages.items()
        for i, name in enumerate(several)
        if name not in section
    }
    for section in stages.values():
        section |= {name: v[0] for name, v in fields.items() if len(v) == 1 and name not in section}
    return {"zip": axes} if axes else {}


def analysis_content(
    text: str, checkpoints: Sequence[str], corpus: str | None, gpus: float
) -> dict[str, Any]:
    """Return the content of a sweep that runs an analysis on every checkpoint, or without any.

    `text` is the name of an analysis or '{type: name, option: value}'; `corpus` is written as in a
    sweep file. Raises DataError for an unknown analysis or option, and SweepError.
    """
    analysis = parse_argument(text, "NAME")
    parse_analysis(analysis)  # first, because names are what is misspelt most often
    section: dict[str, Any] = {"kind": "analysis", "analysis": analysis}
    if corpus is not None:
        section["corpus"] = parse_argument(corpus, "--corpus")
    if gpus:
        section["resources"] = {"gpus": gpus}
    content: dict[str, Any] = {"stages": {ANALYSIS: section}}
    references = list(map(as_reference, checkpoints))
    if len(references) == 1:
        [section["from"]] = references
    elif references:
        content["grid"] = {f"{ANALYSIS}.from": references}
    return content


def _has(kind: str, field: str) -> bool:
    return field in FILE_KINDS.entry(kind).options


def _sections(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the kinds that an argument asks for, each with its fields, once for each task."""
    value = parse_argument(text, TASKS_FLAG)
    tasks_of = {
        name: kind.task_names()
        for name, kind in STAGE_TYPES.all().items()
        if issubclass(kind, ModelEvaluation)
    }
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, dict):
        raise _problem(f"found {shown(value)}, needs a task, or 'kind: {{field: value}}'")
    for name, given in value.items():
        section = {} if given is None else given
        if not isinstance(section, dict):
            raise _problem(f"found {shown(section)} for {name}, needs a mapping of its fields")
        for field in SAID_ELSEWHERE.keys() & section:
            raise _problem(f"{name}.{field} is not given here: {SAID_ELSEWHERE[field]}")
        owners = [kind for kind, tasks in tasks_of.items() if name in tasks]
        if name in tasks_of:
            yield name, dict(section)
        elif len(owners) == 1:
            if "tasks" in section:
                message = f"{name} is a task, which has no tasks; write '{owners[0]}: {{tasks: …}}'"
                raise _problem(message)
            yield owners[0], {"tasks": [name], **section}
        elif owners:
            choices = " or ".join(f"'{kind}: {{tasks: [{name}]}}'" for kind in owners)
            raise _problem(f"{name} is a task of {' and '.join(owners)}; write {choices}")
        else:
            near = did_you_mean(name, [*tasks_of, *itertools.chain(*tasks_of.values())])
            with_tasks = name_list(kind for kind, tasks in tasks_of.items() if tasks)
            raise _problem(
                f"unknown task {shown(name)}{near} (allowed: {name_list(tasks_of)}, "
                f"and the tasks of {with_tasks})"
            )


def _merge(known: dict[str, Any], section: Mapping[str, Any]) -> None:
    """Add a section to a known one of the same kind.

    With tasks, all other fields must be equal: one that is given with a task must not apply to
    another. A kind without tasks takes each field once.
    """
    kind = known["kind"]
    if not _has(kind, "tasks"):
        for field, value in section.items():
            if known.setdefault(field, value) != value:
                raise _problem(f"{kind}.{field} is given twice")
        return
    tasks = [known.get("tasks"), section.get("tasks")]
    same = {**known, "tasks": None} == {"kind": kind, **section, "tasks": None}
    if not same or not all(isinstance(each, list) for each in tasks):
        raise _problem(
            f"{kind} is given twice with different fields; name its tasks in one argument, with "
            f"the fields for all of them: '{kind}: {{tasks: […], …}}'"
        )
    known["tasks"] = [task for each in tasks for task in each or ()]


def _problem(message: str) -> SweepError:
    return SweepError(Problem((TASKS_FLAG,), message))
