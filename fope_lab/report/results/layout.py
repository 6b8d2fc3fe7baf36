"""Arrange cells into the groups and series that tables, figures and the summary show, in the words
of the axes that set them apart.

A metric group holds one metric of one section of the sweep file. Each of its series is one
combination of the axes' values: a row of a table, a curve of a figure. If embeddings are compared
under several settings, such as several scales, the settings divide the series into panels. Only
series of the same panel are compared with each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.report.results.cells import Cell, StageResult, group_by_section
from fope_lab.stages.labels import (
    ABSENT,
    axis_label,
    is_embedding,
    split_label,
    telling_columns,
    tokenizer_label,
)
from fope_lab.stages.metric import LENGTH, Metric
from fope_lab.sweep.claims.grammar import parse_quantity
from fope_lab.sweep.claims.lookup import Catalogue
from fope_lab.sweep.graph import Stage

HasAxes = Stage | Cell
"""A member of the grid, with the values of its axes by path, and its embedding."""
MODEL_EMBEDDING = "embedding"
"""Stands for the path of an axis where a section gives all its models an embedding, and only the
models that they come from are on an axis: {kind: perplexity, from: pretrain, embedding: yarn}."""


@dataclass(frozen=True)
class Axes:
    """The axes of several stages or cells by their paths, and what sets these apart."""

    varying: tuple[str, ...]  # those with several values; embeddings come first
    series: tuple[str, ...]  # those that set the series of a panel apart
    panels: tuple[str, ...]  # those that divide the series into panels
    by_embedding: bool  # whether the embedding alone sets the series apart
    names: Mapping[str, str]  # path → short name
    shared: tuple[str, ...]  # "axis value" of the axes with one value
    folders: Mapping[str, str]  # a checkpoint's folder → its shortest unique ending

    def values(self, member: HasAxes) -> tuple[str, ...]:
        """The values of the varying axes; – if the member has no value."""
        return tuple(self._shown(member, path) for path in self.varying)

    def label(self, member: HasAxes, section: str) -> str:
        """The label of a series within its panel."""
        if self.by_embedding or not self.series:
            return member.embedding or section
        fixed = () if MODEL_EMBEDDING in self.varying else (MODEL_EMBEDDING,)
        return ", ".join(
            self._shown(member, path)
            if is_embedding(path) or is_model(path)
            else self._named(member, path)
            for path in (*self.series, *fixed)
            if path in self.names
        )

    def panel(self, member: HasAxes) -> str:
        """The label of the panel of a series."""
        return ", ".join(self._named(member, path) for path in self.panels)

    def _named(self, member: HasAxes, path: str) -> str:
        return f"{self.names[path]} {self._shown(member, path)}"

    def _shown(self, member: HasAxes, path: str) -> str:
        """The value of an axis; a checkpoint's folder is shortened and follows its embedding."""
        value = _value(member, path)
        if value not in self.folders:
            return value
        return f"{member.embedding or 'model'} ({self.folders[value]})"


def read_axes(members: Iterable[HasAxes]) -> Axes:
    """Read the axes of stages or cells; axes of embeddings come first."""
    members = list(members)
    distinct: dict[str, set[str]] = {}
    for path in dict.fromkeys(path for member in members for path in member.axes):
        if not any(_repeats(path, other, members) for other in distinct):
            distinct[path] = {axis_label(member.axes, path) for member in members}
    if not _embeddings_are_told(members, distinct):
        distinct[MODEL_EMBEDDING] = {_value(member, MODEL_EMBEDDING) for member in members}
    paths = sorted(distinct, key=lambda path: not is_embedding(path))
    names = short_names(paths)
    varying = tuple(path for path in paths if len(distinct[path]) > 1)
    embeddings = tuple(path for path in varying if is_embedding(path))
    chosen = [tuple(axis_label(member.axes, path) for path in embeddings) for member in members]

    def divides(path: str) -> bool:
        """Whether an axis distinguishes members that the embeddings do not."""
        rows = [(*one, axis_label(m.axes, path)) for one, m in zip(chosen, members, strict=True)]
        return len(embeddings) in telling_columns(rows)

    return Axes(
        varying=varying,
        series=embeddings or varying,
        panels=tuple(p for p in varying if embeddings and p not in embeddings and divides(p)),
        by_embedding=bool(embeddings) and len({m.embedding for m in members}) == len(set(chosen)),
        names=names,
        shared=tuple(f"{names[p]} {next(iter(distinct[p]))}" for p in paths if p not in varying),
        folders=unique_endings(
            (name for p in paths if is_model(p) for name in distinct[p] if "/" in name), "/"
        ),
    )


def _value(member: HasAxes, path: str) -> str:
    """The value of an axis; where it leaves a model the embedding that it has, this embedding."""
    keeps_own = path in member.axes and member.axes[path] is None and is_embedding(path)
    if path == MODEL_EMBEDDING or keeps_own:
        return member.embedding or ABSENT
    return axis_label(member.axes, path)


def _embeddings_are_told(members: Sequence[HasAxes], paths: Iterable[str]) -> bool:
    """Whether the axes tell the embedding of every model, or no axis compares embeddings."""
    embeddings = [path for path in paths if is_embedding(path)]
    varied = any(len({_value(member, path) for member in members}) > 1 for path in embeddings)
    if not varied or any(".embedding." in path for path in paths):
        return True
    told = [
        {_value(member, path) for path in embeddings if path in member.axes} for member in members
    ]
    return all(
        not own or one.embedding in (None, *own) for one, own in zip(members, told, strict=True)
    )


def _repeats(path: str, other: str, members: Iterable[HasAxes]) -> bool:
    """Whether an axis repeats another: the same setting of another stage, with equal values."""
    same_setting = path.rpartition(".")[2] == other.rpartition(".")[2]
    return same_setting and all(
        axis_label(one.axes, path) == axis_label(one.axes, other) for one in members
    )


def is_model(path: str) -> bool:
    """Whether an axis selects the model to start from."""
    return path.rpartition(".")[2] == "from"


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The shortest ending of each path that is unique, with spaces for underscores."""
    endings = unique_endings(paths, ".")
    return {path: ending.replace("_", " ") for path, ending in endings.items()}


def unique_endings(names: Iterable[str], separator: str) -> dict[str, str]:
    """The fewest last parts of each name that no other ends in, or else the whole name."""
    parts = {name: name.rstrip(separator).split(separator) for name in names}
    endings = {}
    for name, own in parts.items():
        others = [other for other_name, other in parts.items() if other_name != name]
        counts = (n for n in range(1, len(own)) if all(o[-n:] != own[-n:] for o in others))
        endings[name] = separator.join(own[-next(counts, len(own)) :])
    return endings


def shorten_labels(labels: Iterable[str]) -> dict[str, str]:
    """Shorten each label by the options that all labels with its name share.

    `fope(base=129)` becomes `fope` if there is no other fope. Next to it,
    `fope(base=129,sigma=0.1)` becomes `fope(sigma=0.1)`.
    """
    split = {text: split_label(text) for text in labels}
    named: dict[str, list[set[str]]] = {}
    for name, options in split.values():
        named.setdefault(name, []).append(set(options))
    short = {}
    for text, (name, options) in split.items():
        left = [option for option in options if any(option not in one for one in named[name])]
        # A text that is not one value with options, such as two values joined by a comma, stays.
        whole = text != _joined(name, options) and len(named[name]) > 1
        short[text] = text if whole else _joined(name, left)
    return short


def _joined(name: str, options: Sequence[str]) -> str:
    return f"{name}({','.join(options)})" if options else name


GroupKey = tuple[str, str]
"""The section of the sweep file and the metric's name."""
LEAST_CHANCE = 0.002
"""Below it, chance is not worth a line: 1 in 90,000 for a passkey of five digits."""


@dataclass(frozen=True)
class Series:
    """One combination of the axes' values, over all points of the metric."""

    label: str  # the name within its panel, usually the embedding
    panel: str  # what it shares with the series it is compared with; "" if there is one panel
    axis_values: tuple[str, ...]  # one for each axis of the group
    cells: Mapping[Any, Cell]  # by x; None for a single number
    trained_length: int | None
    unequal: tuple[str, ...] = ()  # what its models differ in from those it is compared with

    @staticmethod
    def of(axes: Axes, cells: Mapping[Any, Cell]) -> Series:
        """The series of cells by x, in the words of the axes that tell it from others."""
        first = next(iter(cells.values()))
        label, values = axes.label(first, first.section), axes.values(first)
        return Series(label, axes.panel(first), values, cells, first.trained_length)

    @property
    def first(self) -> Cell:
        """The first cell, whose stages and axes are those of all."""
        return next(iter(self.cells.values()))

    @property
    def name(self) -> str:
        return f"{self.label} ({self.panel})" if self.panel else self.label

    @property
    def row_labels(self) -> tuple[str, ...]:
        return self.axis_values or (self.label,)

    @property
    def done(self) -> int:
        """The number of seeds that have a value at every point."""
        return min((len(cell.values) for cell in self.cells.values()), default=0)

    @property
    def requested(self) -> int:
        """The number of seeds that the sweep requests."""
        return max((len(c.keys) for c in self.cells.values()), default=0)


@dataclass(frozen=True, kw_only=True)
class SeriesGroup:
    """One metric of a section, over all series."""

    section: str
    metric: Metric
    axes: tuple[str, ...]  # short names of the axes that differ between series
    series: tuple[Series, ...]

    @property
    def cells(self) -> list[Cell]:
        return [cell for series in self.series for cell in series.cells.values()]

    @property
    def panels(self) -> dict[str, list[Series]]:
        panels: dict[str, list[Series]] = {}
        for series in self.series:
            panels.setdefault(series.panel, []).append(series)
        return panels


@dataclass(frozen=True, kw_only=True)
class MetricGroup(SeriesGroup):
    """One metric of one section of the sweep file, over all series."""

    panel_axes: tuple[str, ...]  # those of `axes` that divide the series into panels
    shared: tuple[str, ...]  # "axis value" of the axes that have one value
    only: bool  # whether no other section has the metric
    chance: float | None  # the value of guessing, if it is known and large enough to see
    rates: tuple[str, ...] = ()  # notes: each at its best learning rate, or all at one
    unequal: str | None = None  # the note on series that are not comparable

    @property
    def key(self) -> GroupKey:
        return self.section, self.metric.name

    @property
    def xs(self) -> tuple[int | None, ...]:
        xs = {x for series in self.series for x in series.cells}
        return tuple(sorted(xs, key=lambda x: (x is not None, x or 0)))

    @property
    def trained_lengths(self) -> tuple[int, ...]:
        return tuple(sorted({s.trained_length for s in self.series if s.trained_length}))

    @property
    def title(self) -> str:
        """The metric in words, and the section unless the metric's name already tells it."""
        words = capital(self.metric.label)
        if self.metric.axis not in (None, LENGTH):
            words += f" by {self.metric.by}"
        section, metric = (set(name.split("_")) for name in (self.section, self.metric.name))
        return words if section <= metric and self.only else f"{words} ({self.section})"


def capital(words: str) -> str:
    """Words that begin a sentence."""
    return words[:1].upper() + words[1:]


def group_metrics(
    cells: Sequence[Cell], results: Sequence[StageResult], requested: Collection[GroupKey] = ()
) -> tuple[MetricGroup, ...]:
    """Group all cells: curves first, then single numbers, each in the order of the stages.

    The results give the level of guessing and the tokenizers. A metric that repeats another metric
    of its stage, such as a loss beside its perplexity, has no group; but one that compares across
    tokenizers has a group where it is `requested`, or where the models' tokenizers differ.
    """
    tokenizers = {
        result.stage.key: tokenizer_label(result.stage.model_spec.tokenizer)
        for result in results
        if result.stage.model_spec is not None
    }
    groups: dict[GroupKey, list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.section, cell.metric.name), []).append(cell)
    sections = Counter(name for _, name in groups)
    shown = []
    for key, members in groups.items():
        metric = members[0].metric
        if (key[0], metric.shown_as) in groups:
            used = {tokenizers.get(stage) for cell in members for stage in cell.keys}
            if not (metric.across_tokenizers and (key in requested or len(used) > 1)):
                continue
        by_series: dict[str, dict[int | None, Cell]] = {}
        for cell in members:
            by_series.setdefault(cell.series, {})[cell.x] = cell
        axes = read_axes(members)
        group = MetricGroup(
            section=key[0],
            metric=metric,
            axes=tuple(axes.names[path] for path in axes.varying),
            panel_axes=tuple(axes.names[path] for path in axes.panels),
            shared=axes.shared,
            series=tuple(Series.of(axes, points) for points in by_series.values()),
            only=sections[key[1]] == 1,
            chance=_chance_level(key, results),
        )
        shown.append(group)
    return tuple(sorted(shown, key=lambda group: group.metric.axis is None))


def _chance_level(key: GroupKey, results: Sequence[StageResult]) -> float | None:
    """The value that guessing gives, if the section's results agree on it and it can be seen."""
    levels = {
        measurement.chance
        for result in results
        for measurement in result.record.metrics
        if (result.stage.section, measurement.name) == key and measurement.chance is not None
    }
    return levels.pop() if len(levels) == 1 and min(levels) >= LEAST_CHANCE else None


def stages_without_cells(
    results: Iterable[StageResult], cells: Iterable[Cell]
) -> dict[str, list[StageResult]]:
    """The stages with a model that have no cell yet, by their section of the sweep file."""
    with_cells = {cell.section for cell in cells}
    waiting = group_by_section(
        result
        for result in results
        if result.stage.model_spec is not None and result.stage.section not in with_cells
    )
    return {s: of for s, of in waiting.items() if not all(r.state.is_done for r in of)}


def named_metrics(
    texts: Sequence[str] | None, by_section: Mapping[str, Sequence[Stage]]
) -> list[tuple[str, Metric]] | None:
    """The section and the metric that each text `[stage.]metric[(corpus)]` of a checked file names.
    None without texts."""
    if texts is None:
        return None
    catalogue = Catalogue(by_section)
    selections = [catalogue.find(parse_quantity(text)) for text in texts]
    return [(selected.stage, selected.metric) for selected in selections]


def requested_groups(
    groups: Sequence[MetricGroup], named: Sequence[tuple[str, Metric]] | None
) -> tuple[MetricGroup, ...]:
    """The groups of the named metrics in their order; all groups if None is given.

    If another metric of the section stands for the named one, such as perplexity for loss, its
    group is returned.
    """
    if named is None:
        return tuple(groups)
    by_key = {group.key: group for group in groups}
    found = [
        by_key.get((section, metric.name)) or by_key.get((section, metric.shown_as or metric.name))
        for section, metric in named
    ]
    return tuple({group.key: group for group in found if group is not None}.values())
