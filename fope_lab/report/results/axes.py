"""The axes of a sweep in words: their names, their values, what tells a line from others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fope_lab.stages.labels import label, split_label


class HasAxes(Protocol):
    """What has a place in the grid: a stage, or a cell."""

    @property
    def axes(self) -> Mapping[str, Any]:
        """Path → value."""
        ...

    @property
    def embedding(self) -> str | None:
        """The name of its model's embedding."""
        ...


@dataclass(frozen=True)
class Axes:
    """How the axes of some stages are named and told apart."""

    varying: tuple[str, ...]  # paths, those of embeddings first
    series: tuple[str, ...]  # the paths that tell lines of one panel apart
    along: tuple[str, ...]  # the paths that follow from those: each embedding has one value
    by_embedding: bool  # whether the model's embedding alone tells as much as `series`
    names: Mapping[str, str]  # path → short name
    shared: tuple[str, ...]  # "axis value" of the axes that don't vary
    folders: Mapping[str, str]  # a checkpoint's folder → its shortest ending that tells it

    @property
    def panels(self) -> tuple[str, ...]:
        """The paths that part lines into panels."""
        told = {*self.series, *self.along}
        return tuple(path for path in self.varying if path not in told)

    def values(self, member: HasAxes) -> tuple[str, ...]:
        """The values of the varying axes; – where a combination lacks one."""
        return tuple(self._shown(member, path) for path in self.varying)

    def label(self, member: HasAxes, stage: str) -> str:
        """What names a line within its panel."""
        if self.by_embedding or not self.series:
            return member.embedding or stage
        return ", ".join(
            self._shown(member, path)
            if is_embedding(path) or is_model(path)
            else self._named(member, path)
            for path in self.series
        )

    def panel(self, member: HasAxes) -> str:
        """What names the panel of a line."""
        return ", ".join(self._named(member, path) for path in self.panels)

    def _named(self, member: HasAxes, path: str) -> str:
        return f"{self.names[path]} {self._shown(member, path)}"

    def _shown(self, member: HasAxes, path: str) -> str:
        """A value; a checkpoint's folder in short, after what is in it."""
        value = _value(member, path)
        if value not in self.folders:
            return value
        return f"{member.embedding or 'model'} ({self.folders[value]})"


def read_axes(members: Iterable[HasAxes]) -> Axes:
    """Name the axes of these stages or cells; embeddings come first."""
    members = list(members)
    distinct: dict[str, set[str]] = {}
    for path in dict.fromkeys(path for member in members for path in member.axes):
        if not any(_repeats(path, other, members) for other in distinct):
            distinct[path] = {_value(member, path) for member in members}
    paths = sorted(distinct, key=lambda path: not is_embedding(path))
    names = short_names(paths)
    varying = tuple(path for path in paths if len(distinct[path]) > 1)
    embeddings = tuple(path for path in varying if is_embedding(path))
    values = {value for path in paths if is_model(path) for value in distinct[path]}
    chosen = [tuple(_value(member, path) for path in embeddings) for member in members]
    choices = set(chosen)

    def follows(path: str) -> bool:
        pairs = {(one, _value(m, path)) for one, m in zip(chosen, members, strict=True)}
        return len(pairs) == len(choices)

    return Axes(
        varying=varying,
        series=embeddings or varying,
        along=tuple(p for p in varying if embeddings and p not in embeddings and follows(p)),
        by_embedding=bool(embeddings) and len({m.embedding for m in members}) == len(choices),
        names=names,
        shared=tuple(f"{names[p]} {next(iter(distinct[p]))}" for p in paths if p not in varying),
        folders=short_folders(values),
    )


def _repeats(path: str, other: str, members: Iterable[HasAxes]) -> bool:
    """Whether an axis is another one again: the same setting of another stage, zipped with it."""
    same_setting = path.rpartition(".")[2] == other.rpartition(".")[2]
    return same_setting and all(_value(one, path) == _value(one, other) for one in members)


def is_model(path: str) -> bool:
    """Whether an axis chooses the model to start from."""
    return path.rpartition(".")[2] == "from"


def short_folders(folders: Iterable[str]) -> dict[str, str]:
    """The shortest ending of each folder that no other has; other references are left out."""
    parts = {folder: folder.rstrip("/").split("/") for folder in folders if "/" in folder}
    endings = {}
    for folder, own in parts.items():
        others = [other for name, other in parts.items() if name != folder]
        counts = (n for n in range(1, len(own)) if all(o[-n:] != own[-n:] for o in others))
        endings[folder] = "/".join(own[-next(counts, len(own)) :])
    return endings


def shorten_labels(labels: Iterable[str]) -> dict[str, str]:
    """Each label without the options that all labels of its name have.

    `fope(base=129)` is `fope` in a report that has no other fope, and with it
    `fope(base=129,sigma=0.1)` is `fope(sigma=0.1)`.
    """
    split = {label: split_label(label) for label in labels}
    named: dict[str, list[set[str]]] = {}
    for name, options in split.values():
        named.setdefault(name, []).append(set(options))
    short = {}
    for text, (name, options) in split.items():
        left = [option for option in options if any(option not in one for one in named[name])]
        # What is no single value with options, as two joined by a comma, stays whole.
        whole = text != _joined(name, options) and len(named[name]) > 1
        short[text] = text if whole else _joined(name, left)
    return short


def _joined(name: str, options: Sequence[str]) -> str:
    return f"{name}({','.join(options)})" if options else name


def is_embedding(path: str) -> bool:
    """Whether an axis chooses the embedding."""
    return path.rpartition(".")[2] == "embedding"


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The shortest ending of each path that no other path has; underscores as spaces."""
    names = {}
    for path in paths:
        parts = path.split(".")
        endings = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        others = [f".{other}" for other in paths if other != path]
        ending = next((e for e in endings if not any(o.endswith(f".{e}") for o in others)), path)
        names[path] = ending.replace("_", " ")
    return names


def _value(member: HasAxes, path: str) -> str:
    return label(member.axes[path]) if path in member.axes else "–"
