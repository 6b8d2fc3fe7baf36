"""Read a paper's published table or figure from its file in `papers/`.

A file has the rows and columns of the printed table, and what the paper says of them in our words.
A column gives a metric that a stage of the sweep declares, the point of its curve, and the corpus.
The `where` of a column or a row selects our models by the short names of axes and the labels of
their values; several labels select several models for one number. `setting` applies to the whole
table, but only if the sweep has such an axis. With `trained_length`, in tokens, a number at a
context length is compared with ours at the same multiple of our training length. A figure without
printed numbers has statements only: no number is read off a picture.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen

from fope_lab.config.annotations import Interval
from fope_lab.config.checks import Parsed, Pattern
from fope_lab.config.options import Options, PositiveInt, nested
from fope_lab.config.problems import ConfigError, Problem, SweepError
from fope_lab.config.shipped import paper_path
from fope_lab.config.yaml_document import Document
from fope_lab.stages.labels import label


def _labels(value: Any, base: Path) -> tuple[str, ...]:
    if isinstance(value, dict):
        raise ConfigError("found a mapping, needs a label such as fope or 'p-rope(p=0.25)'")
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ConfigError("found [], needs at least one entry")
    return tuple(map(label, values))


Labels = Annotated[tuple[str, ...], Parsed(_labels, dict)]
Where = dict[str, Labels]
Text = Annotated[str, MinLen(1)]
ArxivNumber = Annotated[str, Pattern(r"\d{4}\.\d{5}", "an arXiv number, such as 2412.17739")]
Repository = Annotated[str, Pattern(r"[\w.-]+/[\w.-]+", "an owner and a name on GitHub")]


@dataclass(frozen=True, kw_only=True)
class PublishedTraining(Options):
    """The hours of one training; `where` selects it by the short names of axes and their labels."""

    where: dict[str, Text] = field(default_factory=dict)
    hours: Annotated[float, Interval(gt=0)]


@dataclass(frozen=True, kw_only=True)
class PublishedHours(Options):
    """What a paper prints of the machine and the time of the trainings of a table or a figure.

    `device` is the name that `plan --device` has for the GPU, if it knows it. `trainings` is empty
    where a paper prints its hardware and no hours.
    """

    place: Text
    hardware: Text
    gpus: PositiveInt
    device: Text | None = None
    trainings: tuple[PublishedTraining, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PublishedColumn(Options):
    """A printed column, and what it measures in our terms."""

    label: Text
    metric: Text
    x: int | None = None
    corpus: str | None = None
    where: Where = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PublishedRow(Options):
    """A printed row: a number for each column, and their printed spreads and average."""

    label: Text
    where: Where
    values: tuple[float | None, ...]
    spreads: tuple[float | None, ...] | None = None
    average: float | None = None


@dataclass(frozen=True, kw_only=True)
class Average(Options):
    """The printed column of averages, and our metric for it. `divided_by` is the divisor of a row's
    sum if it is not the number of columns. Ours is compared with the mean of the columns."""

    metric: Text | None = None
    divided_by: PositiveInt | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedTable(Options):
    """One table or figure of a paper, or of a repository on GitHub that has none. A printed number
    times `factor` is in our unit."""

    paper: Text
    arxiv: ArxivNumber | None = None
    repository: Repository | None = None
    place: Text
    title: Text
    setting: Where = field(default_factory=dict)
    trained_length: PositiveInt | None = None
    factor: Annotated[float, Interval(gt=0)] = 1.0
    says: Annotated[tuple[Text, ...], MinLen(1)]
    notes: tuple[Text, ...] = ()
    hours: PublishedHours | None = None
    spread: Text | None = None
    columns: tuple[PublishedColumn, ...] = ()
    rows: tuple[PublishedRow, ...] = ()
    average: Average | None = None

    @property
    def source(self) -> str:
        where = f"arXiv {self.arxiv}" if self.arxiv else f"github.com/{self.repository}"
        return f"{self.paper}, {where}, {self.place}"

    @property
    def address(self) -> str:
        if self.arxiv:
            return f"https://arxiv.org/abs/{self.arxiv}"
        return f"https://github.com/{self.repository}"

    @property
    def all_columns(self) -> tuple[PublishedColumn, ...]:
        """The columns, followed by that of the averages if we have a metric for it."""
        if self.average is None or self.average.metric is None:
            return self.columns
        return (*self.columns, PublishedColumn(label="average", metric=self.average.metric))

    def value(self, row: PublishedRow, column: PublishedColumn) -> float | None:
        """A published number in our unit; None if the paper prints none."""
        if column in self.columns:
            found = row.values[self.columns.index(column)]
        else:
            found = statistics.mean(value for value in row.values if value is not None)
        return None if found is None else found * self.factor

    def spread_of(self, row: PublishedRow, column: PublishedColumn) -> float | None:
        """The number after ±, as it is printed; None if the paper prints none."""
        if row.spreads is None or column not in self.columns:
            return None
        return row.spreads[self.columns.index(column)]

    def problems(self) -> Iterable[Problem]:
        """No source or two, rows that do not fit the columns, and labels that are given twice."""
        if (self.arxiv is None) is (self.repository is None):
            found = "found neither" if self.arxiv is None else "found both"
            yield Problem(("arxiv",), found, "either arxiv or repository")
        if bool(self.rows) is not bool(self.columns):
            yield Problem(("columns",), "rows and columns need each other")
        for name in ("columns", "rows"):
            labels = [each.label for each in getattr(self, name)]
            for i, text in enumerate(labels):
                if text in labels[:i]:
                    yield Problem((name, i, "label"), f"names {text!r} twice")
        for i, row in enumerate(self.rows):
            for name, values in (("values", row.values), ("spreads", row.spreads)):
                if values is not None and len(values) != len(self.columns):
                    message = f"has {len(values)} numbers for {len(self.columns)} columns"
                    yield Problem(("rows", i, name), message)
            for name, given, wanted in (
                ("spreads", row.spreads, self.spread),
                ("average", row.average, self.average),
            ):
                if (given is None) is not (wanted is None):
                    message = f"give {name} in every row and at the top, or in neither"
                    yield Problem(("rows", i, name), message)


def load_published(name: str) -> PublishedTable:
    """Load a published table by its name, such as 'fope/table2'. Raises SweepError with every
    problem of its file."""
    return read_published(paper_path(name))


def read_published(path: Path) -> PublishedTable:
    """Read the file of a published table. Raises SweepError with every problem of it."""
    document = Document(path)
    problems = document.problems
    try:
        published: PublishedTable = nested(PublishedTable).parse(document.value, path.parent)
    except ConfigError as error:
        problems += map(document.locate, error.problems)
    if problems:
        raise SweepError(problems)
    return published
