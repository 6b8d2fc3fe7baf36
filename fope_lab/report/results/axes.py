"""The axes of a sweep in words: their short names, their values, and the labels of series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.report.results.aggregate import Cell
from fope_lab.stages.labels import ABSENT, axis_label, is_embedding, split_label, telling_columns
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
        """Whether an axis tells members apart that the embeddings do not."""
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
