"""Mark the series of a table whose models differ from the others in more than their embedding.

The series of a panel are compared seed by seed. Most of their models usually agree in size, data
and order; a series that does not agree is marked, and a note names the differences. A difference
that an axis of the sweep causes is marked too, and the note names the axis: a model trained on
twice the tokens has an advantage even if the sweep intends it.
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
from fope_lab.report.results.axes import short_names
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.labels import is_embedding, label

MARK = "‡"
MOST_GROUPS = 4
CAUSES: Mapping[Kind, frozenset[str]] = {
    "parameters": frozenset({"model", "from"}),
    "tokens": frozenset({"train", "from"}),
    "data": frozenset({"data", "tokenizer", "from"}),
    "order": frozenset({"train", "data", "from"}),
    "start": frozenset({"from"}),
}
"""The fields of a stage that can cause each kind of difference."""


@dataclass(frozen=True)
class ComparabilityMarks:
    """The marked series of a group.

    `differences` maps the key of each marked series to its differences in words; `note` explains
    all marks below a table or figure, and is None if no series is marked.
    """

    differences: Mapping[str, tuple[str, ...]]
    note: str | None


def read_histories(results: Iterable[StageResult]) -> dict[str, TrainingHistory]:
    """The training history of every stage's model, by the stage's key."""
    by_key = {result.stage.key: result for result in results}
    return {key: read_history(by_key, key) for key in by_key}


def comparability_marks(
    group: MetricGroup, histories: Mapping[str, TrainingHistory]
) -> ComparabilityMarks:
    """Compare the series of each panel; a stage without a history agrees with any other."""
    marked: dict[str, tuple[str, ...]] = {}
    labels: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    names = short_names(list(dict.fromkeys(path for s in group.series for path in _axes(s))))
    for members in group.panels.values():
        reference, others = _split(members, histories)
        for series, differences in others:
            words = tuple(_words(d, series, reference, names) for d in differences)
            marked[series.key] = words
            where = f"{series.label} ({series.panel})" if series.panel else series.label
            labels.setdefault((reference.label, words), []).append(where)
    return ComparabilityMarks(marked, _note(labels) if labels else None)


def _split(
    members: Sequence[Series], histories: Mapping[str, TrainingHistory]
) -> tuple[Series, list[tuple[Series, tuple[Difference, ...]]]]:
    """The first series of the largest group that agrees, and all series that differ from it."""
    agreeing: list[list[Series]] = []
    for series in members:
        same = next((g for g in agreeing if not _differences(series, g[0], histories)), None)
        if same is None:
            agreeing.append([series])
        else:
            same.append(series)
    reference = max(agreeing, key=len)[0]
    compared = [(series, _differences(series, reference, histories)) for series in members]
    return reference, [(series, differences) for series, differences in compared if differences]


def _differences(
    series: Series, other: Series, histories: Mapping[str, TrainingHistory]
) -> tuple[Difference, ...]:
    """The differences under the first seed whose models differ."""
    keys, other_keys = _keys(series), _keys(other)
    for seed in keys.keys() & other_keys.keys():
        if keys[seed] in histories and other_keys[seed] in histories:
            differences = compare(histories[keys[seed]], histories[other_keys[seed]])
            if differences:
                return differences
    return ()


def _keys(series: Series) -> dict[int | None, str]:
    """The key of each seed's stage, which all cells of a series share."""
    cell = next(iter(series.cells.values()))
    missing = {gap.seed: gap.key for gap in cell.missing}
    return missing | {value.seed: value.key for value in cell.values}


def _axes(series: Series) -> Mapping[str, object]:
    return next(iter(series.cells.values())).axes


def _words(
    difference: Difference, series: Series, reference: Series, names: Mapping[str, str]
) -> str:
    """The difference in words, with the axes that differ between two series and can cause it."""
    axes, reference_axes = _axes(series), _axes(reference)
    causes = [
        names[path]
        for path in names
        if not is_embedding(path)
        and label(axes.get(path)) != label(reference_axes.get(path))
        and path.split(".")[1] in CAUSES[difference.kind]
    ]
    return difference.words + (f", set by {' and '.join(causes)}" if causes else "")


def _note(labels: Mapping[tuple[str, tuple[str, ...]], Sequence[str]]) -> str:
    parts = [
        f"{', '.join(rows)} differ{'s' * (len(rows) == 1)} from {reference} in {'; '.join(words)}"
        for (reference, words), rows in list(labels.items())[:MOST_GROUPS]
    ]
    rest = len(labels) - MOST_GROUPS
    more = f"; and {rest} more" if rest > 0 else ""
    return f"{MARK} These models differ in more than what is compared: {'; '.join(parts)}{more}."
