"""`fope-lab evaluate`: tasks on checkpoints that no sweep trained, as a sweep made on the spot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fope_lab.made_sweep import parse_argument
from fope_lab.sweep import Problem, SweepError
from fope_lab.sweep.problems import did_you_mean, name_list, shown
from fope_lab.sweep.stages import FILE_KINDS, KINDS, EvaluationConfig

FLAG = "--tasks"


def evaluation_kinds() -> dict[str, type[EvaluationConfig]]:
    """The kinds of stages that measure a model, by name."""
    found = {name: KINDS[name] for name in FILE_KINDS}
    return {name: kind for name, kind in found.items() if issubclass(kind, EvaluationConfig)}


def evaluation_content(
    checkpoints: Sequence[str], tasks: Sequence[str], lengths: Sequence[int] | None, gpus: float
) -> dict[str, Any]:
    """The content of a sweep in which every checkpoint is measured by every task.

    A task is a kind's name, the name of a task of a kind (`hellaswag`), or `kind: {field: value}`
    with the fields of a sweep file; `lengths` are those of the kinds that have lengths, where they
    say none themselves. Raises SweepError.
    """
    stages: dict[str, dict[str, Any]] = {}
    for text in tasks:
        for name, section in _sections(text).items():
            known = stages.setdefault(name, {"kind": name})
            _merge(known, section)
    for name, section in stages.items():
        fields = KINDS[name].model_fields
        if lengths and "lengths" in fields and "lengths" not in section:
            section["lengths"] = list(lengths)
        if gpus and "resources" not in section:
            section["resources"] = {"gpus": gpus}
        if len(checkpoints) == 1:
            section["from"] = checkpoints[0]
    content: dict[str, Any] = {"stages": stages}
    if len(checkpoints) > 1:
        content["zip"] = {f"{name}.from": list(checkpoints) for name in stages}
    return content


def _sections(text: str) -> Mapping[str, dict[str, Any]]:
    """The sections of stages that one argument asks for, by kind."""
    value = parse_argument(text, FLAG)
    kinds = evaluation_kinds()
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, dict):
        raise _problem(f"found {shown(value)}, needs a task, or 'kind: {{field: value}}'")
    sections: dict[str, dict[str, Any]] = {}
    for name, section in value.items():
        if section is not None and not isinstance(section, dict):
            raise _problem(f"found {shown(section)} for {name}, needs a mapping of its fields")
        owners = [kind for kind, cls in kinds.items() if name in cls.task_names()]
        if name in kinds:
            sections[name] = dict(section or {})
        elif len(owners) == 1:
            sections[owners[0]] = {"tasks": [name], **(section or {})}
        elif owners:
            asked = " or ".join(f"'{kind}: {{tasks: [{name}]}}'" for kind in owners)
            raise _problem(f"{name} is a task of {' and '.join(owners)}; write {asked}")
        else:
            near = did_you_mean(
                name, [*kinds, *(task for cls in kinds.values() for task in cls.task_names())]
            )
            of_kinds = [kind for kind, cls in kinds.items() if cls.task_names()]
            raise _problem(
                f"unknown task {shown(name)}{near} (allowed: {name_list(kinds)}, "
                f"and the tasks of {name_list(of_kinds)})"
            )
    return sections


def _merge(known: dict[str, Any], section: Mapping[str, Any]) -> None:
    """Several arguments may name tasks of one kind; other fields are given once."""
    for field, value in section.items():
        if field == "tasks" and "tasks" in known:
            known["tasks"] = [*known["tasks"], *value]
        elif field in known and known[field] != value:
            raise _problem(f"{known['kind']}.{field} is given twice")
        else:
            known[field] = value


def _problem(message: str) -> SweepError:
    return SweepError([Problem(Path(FLAG), None, "", message)])
