"""Rows of a table whose models may not be compared with those of the other rows.

Rows of one panel are compared, seed by seed. Most of them are alike, as a rule; what is not like
these is marked, and the note says in what. Where an axis of the sweep asks for the difference, it
is marked as well, and the axis is named: a row with twice the tokens is no fair rival, asked for or
not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.report.compare.training_history import (
    Difference,
    Kind,
    TrainingHistory,
    compare,
    read_history,
)
from fope_lab.report.results.axes import is_embedding, short_names
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.labels import label

MARK = "‡"
MOST_GROUPS = 4
ASKING: Mapping[Kind, frozenset[str]] = {
    "parameters": frozenset({"model", "from"}),
    "tokens": frozenset({"train", "from"}),
    "data": frozenset({"data", "tokenizer", "from"}),
    "order": frozenset({"train", "data", "from"}),
    "start": frozenset({"from"}),
}
"""The fields of a stage that can ask for a difference."""


@dataclass(frozen=True)
class ComparabilityMarks:
    """The lines of a block that are unlike those beside them, by `id`, each with its differences in
    words; and what a table says of them all."""

    lines: Mapping[int, tuple[str, ...]]
    note: str | None


def read_histories(readings: Iterable[StageResult]) -> dict[str, TrainingHistory]:
    """The history of every stage's model, by the stage's key."""
    by_key = {reading.stage.key: reading for reading in readings}
    return {key: read_history(by_key, key) for key in by_key}


def comparability_marks(
    block: MetricGroup, histories: Mapping[str, TrainingHistory]
) -> ComparabilityMarks:
    """Compare the lines of each panel; a stage that is not among the histories equals any."""
    marked: dict[int, tuple[str, ...]] = {}
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    names = short_names(list(dict.fromkeys(path for line in block.lines for path in _axes(line))))
    for lines in block.panels.values():
        usual, others = _usual(lines, histories)
        for line, found in others:
            words = tuple(_words(one, _asking(one, line, usual, names)) for one in found)
            marked[id(line)] = words
            where = f"{line.label} ({line.panel})" if line.panel else line.label
            groups.setdefault((usual.label, words), []).append(where)
    return ComparabilityMarks(marked, _note(groups) if groups else None)


def _usual(
    lines: Sequence[Series], histories: Mapping[str, TrainingHistory]
) -> tuple[Series, list[tuple[Series, tuple[Difference, ...]]]]:
    """The first of the lines that are alike, of the most that are, and the lines that are not like
    it with what is different."""
    alike: list[list[Series]] = []
    for line in lines:
        group = next((g for g in alike if not _differences(line, g[0], histories)), None)
        if group is None:
            alike.append([line])
        else:
            group.append(line)
    usual = max(alike, key=len)[0]
    compared = [(line, _differences(line, usual, histories)) for line in lines]
    return usual, [(line, found) for line, found in compared if found]


def _differences(
    line: Series, other: Series, histories: Mapping[str, TrainingHistory]
) -> tuple[Difference, ...]:
    """Of the first seed whose models differ."""
    ours, theirs = _keys(line), _keys(other)
    for seed in ours.keys() & theirs.keys():
        if ours[seed] in histories and theirs[seed] in histories:
            found = compare(histories[ours[seed]], histories[theirs[seed]])
            if found:
                return found
    return ()


def _keys(line: Series) -> dict[int | None, str]:
    """The key of each seed's stage: all cells of a line have the same."""
    cell = next(iter(line.cells.values()))
    missing = {gap.seed: gap.key for gap in cell.missing}
    return missing | {value.seed: value.key for value in cell.values}


def _axes(line: Series) -> Mapping[str, object]:
    return next(iter(line.cells.values())).axes


def _asking(
    difference: Difference, line: Series, usual: Series, names: Mapping[str, str]
) -> list[str]:
    """The axes that set the two lines apart and can be what makes the difference."""
    ours, theirs = _axes(line), _axes(usual)
    return [
        names[path]
        for path in names
        if not is_embedding(path)
        and label(ours.get(path)) != label(theirs.get(path))
        and path.split(".")[1] in ASKING[difference.kind]
    ]


def _words(difference: Difference, axes: Sequence[str]) -> str:
    asked = f", as {' and '.join(axes)} asks" if axes else ""
    return f"{difference.words}{asked}"


def _note(groups: Mapping[tuple[str, tuple[str, ...]], Sequence[str]]) -> str:
    parts = [
        f"{', '.join(rows)}, beside {usual}, in {'; '.join(words)}"
        for (usual, words), rows in list(groups.items())[:MOST_GROUPS]
    ]
    rest = len(groups) - MOST_GROUPS
    more = f"; and {rest} more" if rest > 0 else ""
    return f"{MARK} Models that differ in more than what is compared: {'; '.join(parts)}{more}."
