"""The settings behind the numbers: all of them, and what is known of the one that varies.

Configurations are shown whole, so that settings added later are shown too. Where a training has
several values on a numeric axis under `train`, such as the learning rate, a group shows its
validation loss over them, and each metric by which evaluations have measured all of its models; of
a metric by length at the trained length and at the longest. Where each method has one value of its
own, nothing is over the setting, and there is no group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fope_lab.report.results.cells import (
    Cell,
    StageResult,
    canonical,
    chosen_keys,
    group_by_section,
)
from fope_lab.report.results.layout import MetricGroup, Series, SeriesGroup, capital, read_axes
from fope_lab.stages.internal import Select
from fope_lab.stages.labels import label
from fope_lab.stages.metric import LENGTH
from fope_lab.stages.training import TrainingConfig

SHOWN_VALUES = 8
LOSSES = ("validation_loss", "loss")
"""The metrics of a training that a group may be of; the first that it has is shown."""
OPTIMISTIC = (
    "The validation loss of a model that select chose is optimistic, being the least of several;"
    " numbers for it are those of evaluations, on text that the selection did not read."
)
"""What is said wherever the validation loss of a chosen model is shown."""


@dataclass(frozen=True)
class SettingsGroup:
    """The settings of one section of the sweep file, over all its combinations. Each setting is the
    path of a field and its value, or its values."""

    section: str
    count: int
    requested: tuple[tuple[str, str], ...]  # from the sweep file
    recorded: tuple[tuple[str, str], ...]  # from the results, if they differ


def collect_settings(results: Iterable[StageResult]) -> tuple[SettingsGroup, ...]:
    """Collect the settings of each section of the sweep file, in its order."""
    groups = []
    for section, members in group_by_section(results).items():
        requested = _merge([result.stage.config for result in members])
        recorded = _merge(
            [r.stage.spec.recorded_in_words(r.record.recorded) for r in members if r.state.is_done]
        )
        new = tuple(pair for pair in recorded if pair not in requested)
        groups.append(SettingsGroup(section, len(members), requested, new))
    return tuple(groups)


def _merge(settings: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    values: dict[str, list[Any]] = {}
    for mapping in filter(None, settings):
        for path, value in _flatten(mapping):
            values.setdefault(path, []).append(value)
    total = len(settings)
    return tuple(
        (path, _describe(items) + (f" (in {len(items)} of {total})" if len(items) < total else ""))
        for path, items in values.items()
    )


def _flatten(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    """The values of a configuration by the paths of their fields, numbers by length as one."""
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        value = {str(i): item for i, item in enumerate(value)}
    by_length = isinstance(value, Mapping) and all(
        str(key).isdigit() and not isinstance(item, Mapping) for key, item in value.items()
    )
    if isinstance(value, Mapping) and not by_length:
        for key, item in value.items():
            yield from _flatten(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _describe(values: Sequence[Any]) -> str:
    texts = list(dict.fromkeys(map(_setting_text, values)))
    if len(texts) == 1:
        return texts[0]
    if all(map(_is_number, values)) and len(texts) > 3:
        return f"{_setting_text(min(values))} to {_setting_text(max(values))}"
    shown = "; ".join(texts[:SHOWN_VALUES])
    rest = len(texts) - SHOWN_VALUES
    return f"differs: {shown}" + (f"; and {rest} more" if rest > 0 else "")


def _setting_text(value: Any) -> str:
    if isinstance(value, Mapping):  # by length
        texts = {key: _setting_text(item) for key, item in value.items()}
        if len(set(texts.values())) == 1:
            return f"{next(iter(texts.values()))} at each length"
        return ", ".join(f"{text} at {key}" for key, text in texts.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting_text, value)) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}"
    return "none" if value is None else str(value)


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
