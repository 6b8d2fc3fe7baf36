"""Sweeps that a command makes of its arguments: evaluations and analyses of checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fope_lab.analysis import parse_analysis
from fope_lab.atomic_files import write_atomic
from fope_lab.config.problems import FieldPath, did_you_mean, name_list, shown
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


ANALYSIS = "analysis"
TASKS_FLAG, EMBEDDING_FLAG = "--tasks", "--embedding"
SAID_ELSEWHERE = {"kind": "it is the name before the colon", "from": "CHECKPOINT says it"}
"""The fields of a stage that a task can't set, and where they come from instead."""


def evaluation_kinds() -> dict[str, type[ModelEvaluation]]:
    """The kinds of stages that measure a model, by name."""
    kinds = STAGE_TYPES.all().items()
    return {name: kind for name, kind in kinds if issubclass(kind, ModelEvaluation)}


def evaluation_content(
    checkpoints: Sequence[str],
    tasks: Sequence[str],
    lengths: Sequence[int] | None,
    gpus: float,
    embeddings: Sequence[str] = (),
) -> dict[str, Any]:
    """The content of a sweep in which every checkpoint is measured by every task.

    A task is a kind's name, the name of a task of a kind (`hellaswag`), or `kind: {field: value}`
    with the fields of a sweep file; tasks of the same kind become one stage. `lengths` apply to
    every kind that has lengths and does not set its own. With `embeddings`, written as in a sweep
    file, every checkpoint is measured with each of them in place of its own. Raises SweepError,
    also if `lengths` have no effect.
    """
    references = list(map(as_reference, checkpoints))
    replacements = [parse_argument(text, EMBEDDING_FLAG) for text in embeddings]
    stages: dict[str, dict[str, Any]] = {}
    for text in tasks:
        for name, section in _sections(text):
            if name in stages:
                _merge(stages[name], section)
            else:
                stages[name] = {"kind": name, **section}
    if lengths and not any(map(_lacks_lengths, stages.values())):
        message = "has no effect: the tasks have no lengths, or say them themselves"
        raise SweepError(Problem(("--lengths",), message))
    for section in stages.values():
        if lengths and _lacks_lengths(section):
            section["lengths"] = list(lengths)
        if gpus and "resources" not in section:
            section["resources"] = {"gpus": gpus}
    return {"stages": stages, **_axes(stages, {"from": references, "embedding": replacements})}


def _axes(
    stages: Mapping[str, dict[str, Any]], fields: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """The axes over fields that all stages share: every combination of their values.

    A field with one value is set in the stages, and one without values is left out. A stage that
    sets a field itself keeps its value.
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
    """The content of a sweep that runs an analysis on every checkpoint, or once without any.

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


def _lacks_lengths(section: Mapping[str, Any]) -> bool:
    """Whether a stage's kind has lengths that the section does not set."""
    return "lengths" in FILE_KINDS.entry(section["kind"]).options and "lengths" not in section


def _sections(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The sections of the stages that an argument asks for, each with its kind.

    A kind occurs several times if the argument names several of its tasks.
    """
    value = parse_argument(text, TASKS_FLAG)
    kinds = evaluation_kinds()
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, dict):
        raise _problem(f"found {shown(value)}, needs a task, or 'kind: {{field: value}}'")
    sections: list[tuple[str, dict[str, Any]]] = []
    for name, section in value.items():
        if section is not None and not isinstance(section, dict):
            raise _problem(f"found {shown(section)} for {name}, needs a mapping of its fields")
        for field, where in SAID_ELSEWHERE.items():
            if field in (section or {}):
                raise _problem(f"{name}.{field} is not given here: {where}")
        owners = [kind for kind, config in kinds.items() if name in config.task_names()]
        if name in kinds:
            sections.append((name, dict(section or {})))
        elif len(owners) == 1:
            if section and "tasks" in section:
                message = f"{name} is a task, which has no tasks; write '{owners[0]}: {{tasks: …}}'"
                raise _problem(message)
            sections.append((owners[0], {"tasks": [name], **(section or {})}))
        elif owners:
            choices = " or ".join(f"'{kind}: {{tasks: [{name}]}}'" for kind in owners)
            raise _problem(f"{name} is a task of {' and '.join(owners)}; write {choices}")
        else:
            near = did_you_mean(
                name, [*kinds, *(task for config in kinds.values() for task in config.task_names())]
            )
            with_tasks = [kind for kind, config in kinds.items() if config.task_names()]
            raise _problem(
                f"unknown task {shown(name)}{near} (allowed: {name_list(kinds)}, "
                f"and the tasks of {name_list(with_tasks)})"
            )
    return sections


def _merge(known: dict[str, Any], section: Mapping[str, Any]) -> None:
    """Add a section to a known one of the same kind.

    Arguments that name tasks of the same kind must give the same fields, because a field given with
    one task must not apply to another. A kind without tasks takes each field once.
    """
    kind = known["kind"]
    if "tasks" not in FILE_KINDS.entry(kind).options:
        for field, value in section.items():
            if known.setdefault(field, value) != value:
                raise _problem(f"{kind}.{field} is given twice")
        return
    first, second = ({k: v for k, v in each.items() if k != "kind"} for each in (known, section))
    lists = [each.pop("tasks", None) for each in (first, second)]
    if first != second or not all(isinstance(tasks, list) for tasks in lists):
        raise _problem(
            f"{kind} is given twice with different fields; name its tasks in one argument, with "
            f"the fields for all of them: '{kind}: {{tasks: […], …}}'"
        )
    known["tasks"] = [task for tasks in lists for task in tasks]


def _problem(message: str) -> SweepError:
    return SweepError(Problem((TASKS_FLAG,), message))
