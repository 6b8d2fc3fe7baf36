"""How a command names stages.

    pretrain                              every stage of this section of the sweep file
    pretrain[embedding=rope,seed=0]       the stage of this label
    pretrain[embedding=rope]              every stage with this in its label, if none has this label
    1a2b3c4d                              the stage whose key begins like this

A command that takes one stage takes a section, too, if the section has one stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from fope_lab.config.problems import (
    FieldPath,
    Problem,
    SweepError,
    first_names,
    name_list,
    nearest_name,
    shown,
)
from fope_lab.stages.short_labels import LabelParts

KEY_DIGITS = 6
"""The least number of digits of a key that name a stage."""
SHOWN_DIGITS = 8
"""The number of digits of a key that tables and messages show."""


class NamedStage(Protocol):
    """What names a stage; the section and the label are empty if only its key does."""

    @property
    def key(self) -> str: ...
    @property
    def section(self) -> str: ...
    @property
    def label(self) -> str: ...


AnyStage = TypeVar("AnyStage", bound=NamedStage)


def find_stages(
    stages: Iterable[AnyStage], names: Iterable[str], at: FieldPath = ()
) -> list[AnyStage]:
    """The stages that any of the names means, each key once, in the order of `stages`.

    A key may occur several times in `stages`, with other names. `at` is the argument that errors
    name. Raises SweepError for a name that means no stage, and for digits with which several keys
    begin.
    """
    known = list(stages)
    problems: list[Problem] = []
    named: set[str] = set()
    for name in names:
        by_name = {s.key: s for s in known if name and name in (s.section, s.label)}
        by_name = by_name or _by_part_of_label(name, known)
        by_key = {s.key: s for s in known if len(name) >= KEY_DIGITS and s.key.startswith(name)}
        if not by_name and len(by_key) != 1:
            several = list(by_key.values())
            problems.append(_several(name, several, at) if several else _unknown(name, known, at))
        named |= (by_name or by_key).keys()
    if problems:
        raise SweepError(problems)
    first: dict[str, AnyStage] = {}
    for stage in known:
        first.setdefault(stage.key, stage)
    return [stage for key, stage in first.items() if key in named]


def find_stage(stages: Iterable[AnyStage], name: str, at: FieldPath = ()) -> AnyStage:
    """The one stage that the name means. Raises SweepError if it means none or several."""
    found = find_stages(stages, [name], at)
    if len(found) > 1:
        raise SweepError(_several(name, found, at))
    return found[0]


def _by_part_of_label(name: str, stages: Iterable[AnyStage]) -> dict[str, AnyStage]:
    """The stages whose labels have all the fields of a name, by key; none if it has no fields."""
    wanted = LabelParts.of(name)
    if wanted is None:
        return {}
    parts = ((stage, LabelParts.of(stage.label)) for stage in stages)
    return {stage.key: stage for stage, of in parts if of is not None and of.includes(wanted)}


def _unknown(name: str, stages: Sequence[NamedStage], at: FieldPath) -> Problem:
    sections = list(dict.fromkeys(stage.section for stage in stages if stage.section))
    labels = dict.fromkeys(stage.label for stage in stages if stage.label)
    nearest = nearest_name(name, sections) or nearest_name(name, labels)
    fault = f"unknown stage or key {shown(name)}"
    return Problem(at, fault, nearest=nearest, allowed=first_names(sections))


def _several(name: str, stages: Sequence[NamedStage], at: FieldPath) -> Problem:
    names = name_list(f"{stage.label} ({stage.key[:SHOWN_DIGITS]})" for stage in stages)
    return Problem(at, f"{shown(name)} means {len(stages)} stages: {names}", "one label or key")
