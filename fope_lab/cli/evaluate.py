"""`fope-lab evaluate`: tasks on checkpoints that no sweep trained, as a sweep made on the spot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fope_lab.config.problems import did_you_mean, name_list, shown
from fope_lab.evaluation.base import ModelEvaluation
from fope_lab.sweep import Problem, SweepError
from fope_lab.sweep.adhoc_sweep import as_reference, parse_argument
from fope_lab.sweep.kinds import FILE_KINDS, KINDS

FLAG = "--tasks"
SAID_ELSEWHERE = {"kind": "it is the name before the colon", "from": "CHECKPOINT says it"}
"""Fields of a stage that an argument does not give, and why."""


def evaluation_kinds() -> dict[str, type[ModelEvaluation]]:
    """The kinds of stages that measure a model, by name."""
    found = {name: KINDS[name] for name in FILE_KINDS}
    return {name: kind for name, kind in found.items() if issubclass(kind, ModelEvaluation)}


def evaluation_content(
    checkpoints: Sequence[str], tasks: Sequence[str], lengths: Sequence[int] | None, gpus: float
) -> dict[str, Any]:
    """The content of a sweep in which every checkpoint is measured by every task.

    A task is a kind's name, the name of a task of a kind (`hellaswag`), or `kind: {field: value}`
    with the fields of a sweep file; tasks of one kind are one stage. `lengths` are those of the
    kinds that have lengths, where they say none themselves. Raises SweepError, also where `lengths`
    have no effect.
    """
    references = list(map(as_reference, checkpoints))
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
        if len(references) == 1:
            [section["from"]] = references
    content: dict[str, Any] = {"stages": stages}
    if len(references) > 1:
        content["zip"] = {f"{name}.from": list(references) for name in stages}
    return content


def _lacks_lengths(section: Mapping[str, Any]) -> bool:
    """Whether a stage's kind has lengths, and the section says none."""
    return "lengths" in KINDS[section["kind"]].model_fields and "lengths" not in section


def _sections(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The sections of stages that one argument asks for, with their kinds; several of one kind
    where it names several tasks."""
    value = parse_argument(text, FLAG)
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
        owners = [kind for kind, cls in kinds.items() if name in cls.task_names()]
        if name in kinds:
            sections.append((name, dict(section or {})))
        elif len(owners) == 1:
            if section and "tasks" in section:
                message = f"{name} is a task, which has no tasks; write '{owners[0]}: {{tasks: …}}'"
                raise _problem(message)
            sections.append((owners[0], {"tasks": [name], **(section or {})}))
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
    """Several arguments may name tasks of one kind, all with the same fields, for what is given
    with one task must not become another's; a kind without tasks has each field once."""
    kind = known["kind"]
    if "tasks" not in KINDS[kind].model_fields:
        for field, value in section.items():
            if known.setdefault(field, value) != value:
                raise _problem(f"{kind}.{field} is given twice")
        return
    one, other = ({k: v for k, v in each.items() if k != "kind"} for each in (known, section))
    lists = [each.pop("tasks", None) for each in (one, other)]
    if one != other or not all(isinstance(tasks, list) for tasks in lists):
        raise _problem(
            f"{kind} is one stage, asked for twice here and not alike; name its tasks in one "
            f"argument, with the fields for all of them: '{kind}: {{tasks: […], …}}'"
        )
    known["tasks"] = [task for tasks in lists for task in tasks]


def _problem(message: str) -> SweepError:
    return SweepError(Problem((FLAG,), message))
