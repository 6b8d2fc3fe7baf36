"""What is known of a setting of a training that varies.

Where a training has several values on a numeric axis under `train`, such as the learning rate, a
group shows its validation loss over them, and each metric by which evaluations have measured all of
its models; of a metric by length at the trained length and at the longest. Where each method has
one value of its own, nothing is over the setting, and there is no group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fope_lab.report.results.cells import (
    Cell,
    StageResult,
    canonical,
    chosen_keys,
)
from fope_lab.report.results.layout import MetricGroup, Series, SeriesGroup, capital, read_axes
from fope_lab.stages.internal import Select
from fope_lab.stages.labels import label
from fope_lab.stages.metric import LENGTH
from fope_lab.stages.training import TrainingConfig

LOSSES = ("validation_loss", "loss")
"""The metrics of a training that a group may be of; the first that it has is shown."""
OPTIMISTIC = (
    "The validation loss of a model that select chose is optimistic, being the least of several;"
    " numbers for it are those of evaluations, on text that the selection did not read."
)
"""What is said wherever the validation loss of a chosen model is shown."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=True)
class SettingGroup(SeriesGroup):
    """One metric of a section, at `x` if it is a curve, over the values of a setting.

    `setting` is the axis. The cells of a series are by its values, in rising order. `by` is the
    metric that a selection went by, in words, None if there is none; `chosen` are the keys of what
    selections took.
    """

    setting: str
    x: int | None
    by: str | None
    chosen: frozenset[str]

    @property
    def trained(self) -> str:
        return self.setting.partition(".")[0]

    @property
    def name(self) -> str:
        return _words(self.setting)

    @property
    def values(self) -> list[float]:
        return sorted({value for series in self.series for value in series.cells})

    @property
    def title(self) -> str:
        """Such as "Perplexity at 64 by learning rate (perplexity)"."""
        at = "" if self.x is None else f" at {self.x}"
        return f"{capital(self.metric.label)}{at} by {self.name} ({self.section})"

    def is_chosen(self, cell: Cell) -> bool:
        """Whether a selection took the models of a cell."""
        return not self.chosen.isdisjoint(cell.keys)


def group_over_settings(
    cells: Sequence[Cell], results: Sequence[StageResult]
) -> tuple[SettingGroup, ...]:
    """Every group, in the order of the cells."""
    sections = {r.stage.key: r.stage.section for r in results}
    trained = {r.stage.section for r in results if r.stage.spec.trains}
    chosen, rules = chosen_keys(results), {}
    for result in results:
        if isinstance(spec := result.stage.spec, Select):
            section = next(
                (sections[k] for k in result.stage.parents.values() if k in sections), ""
            )
            rules[f"{section}.{spec.over}"] = _words(spec.by)
    by_axis: dict[str, list[Cell]] = {}
    for cell in cells:
        for axis, value in cell.axes.items():
            section, _, field = axis.partition(".")
            if section in trained and field.startswith("train.") and _is_number(value):
                by_axis.setdefault(axis, []).append(cell)
    groups = []
    for axis, members in by_axis.items():
        if len({cell.axes[axis] for cell in members}) > 1:
            for of_metric in _shown(members, axis.partition(".")[0]):
                group = _group(axis, of_metric, chosen, rules.get(axis))
                if any(len(series.cells) > 1 for series in group.series):
                    groups.append(group)
    return tuple(groups)


def _shown(cells: Sequence[Cell], trained: str) -> Iterator[list[Cell]]:
    own = {cell.metric.name for cell in cells if cell.section == trained}
    loss = next((name for name in LOSSES if name in own), None)
    by_metric: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        is_loss = cell.section == trained and cell.metric.name == loss
        shown = cell.metric.shown_as is None and cell.metric.axis in (None, LENGTH)
        is_measured = cell.section != trained and not cell.metric.name.endswith("loss") and shown
        if is_loss or is_measured:
            by_metric.setdefault((cell.section, cell.metric.name), []).append(cell)
    for members in by_metric.values():
        xs = sorted({cell.x for cell in members if cell.x is not None})
        lengths = {cell.trained_length for cell in members}
        ends: list[int | None] = [x for x in xs if x in lengths or x == xs[-1]]
        for x in ends or [None]:
            yield [cell for cell in members if cell.x == x]


def _group(
    axis: str, cells: Sequence[Cell], chosen: frozenset[str], by: str | None
) -> SettingGroup:
    without = [replace(c, axes={k: v for k, v in c.axes.items() if k != axis}) for c in cells]
    axes = read_axes(without)
    rows: dict[str, dict[float, Cell]] = {}
    for cell, other in zip(cells, without, strict=True):
        rows.setdefault(canonical(other.axes), {})[cell.axes[axis]] = cell
    first = cells[0]
    return SettingGroup(
        setting=axis,
        section=first.section,
        metric=first.metric,
        x=first.x,
        axes=tuple(axes.names[path] for path in axes.varying),
        series=tuple(Series.of(axes, dict(sorted(row.items()))) for row in rows.values()),
        by=by,
        chosen=chosen,
    )


def rate_notes(group: MetricGroup, results: Mapping[str, StageResult]) -> tuple[str, ...]:
    """Whether the rows of a table are each at its own best learning rate, or all at one, in words.

    `results` are those of all stages, by key. A group in which no two embeddings are compared has
    none.
    """
    if len({cell.embedding for cell in group.cells}) < 2:
        return ()
    chosen: dict[tuple[str, str], dict[str, str]] = {}
    candidates: dict[tuple[str, str], dict[str, int]] = {}
    rates: dict[str, set[Any]] = {}
    selected: set[str] = set()
    for series in group.series:
        key: str | None = series.first.keys[0]
        while key is not None and key in results:  # the nearest first, under the first seed
            result = results[key]
            spec, key = result.stage.spec, result.model_parent
            if isinstance(spec, Select):
                parents = (results[k] for k in result.stage.parents.values() if k in results)
                rule = (spec.over, spec.by)
                text = "not chosen yet" if result.choice is None else label(result.choice)
                chosen.setdefault(rule, {})[series.name] = text
                candidates.setdefault(rule, {})[series.name] = len(spec.values)
                if spec.over.endswith(".learning_rate"):
                    selected.add(next(parents, result).stage.section)
            elif isinstance(spec, TrainingConfig):
                rates.setdefault(result.stage.section, set()).add(spec.train.learning_rate)
    notes = [
        f"Each at its own best {_words(over)}, chosen by {_words(by)}:"
        f" {', '.join(f'{name} {value}' for name, value in values.items())}."
        for (over, by), values in chosen.items()
    ]
    notes += [
        f"Not all had as many candidates: {', '.join(f'{name} {n}' for name, n in of.items())}."
        for of in candidates.values()
        if len(set(of.values())) > 1
    ]
    one = {name: min(of) for name, of in rates.items() if len(of) == 1 and name not in selected}
    if one:
        several = len(rates) > 1
        parts = [f"{label(rate)}{f' ({name})' * several}" for name, rate in one.items()]
        notes.append(f"All at learning rate {' and '.join(parts)}; not each at its best.")
    own = chosen_keys(results.values()).intersection(key for c in group.cells for key in c.keys)
    if own and group.metric.name.endswith("validation_loss"):
        notes.append(OPTIMISTIC)
    return tuple(notes)


def _words(path: str) -> str:
    """The last word of a setting's path: train.learning_rate → learning rate."""
    return path.rpartition(".")[2].replace("_", " ")
