"""A paper's published table or figure, from its file in `papers/`: the numbers that are printed,
and what the paper says of them in our words.

A file has the rows and the columns of the printed table. A column says what it is in our terms: a
metric, the point of its curve, the corpus. `where` of a column or a row says which of our models it
is about, by the axes' short names and the labels of their values; several labels stand for several
models of ours beside one number. `setting` holds for the whole table, and counts only where a sweep
has such an axis. With `trained_length`, in tokens, a number at a context length stands beside ours
at the same multiple of the length that ours were trained at. Figures without printed numbers have
statements only: none is read off a picture.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from fope_lab.config.problems import FieldPath, Problem, SweepError
from fope_lab.config.pydantic_errors import SectionError, messages_of
from fope_lab.config.yaml_document import Document
from fope_lab.papers.index import paper_path
from fope_lab.report.results.metric_names import metric_named
from fope_lab.stages.labels import label
from fope_lab.stages.section import Section


def _labels(value: Any) -> Any:
    """One value or a list of them, as labels."""
    if isinstance(value, dict):
        raise ValueError("found a mapping, needs a label such as fope or 'p-rope(p=0.25)'")
    return tuple(label(one) for one in (value if isinstance(value, list) else [value]))


def _result(name: str) -> str:
    if metric_named(name) is None:
        raise ValueError(f"found {name!r}, which is no result's name")
    return name


Where = dict[str, Annotated[tuple[str, ...], BeforeValidator(_labels), Field(min_length=1)]]
Text = Annotated[str, Field(min_length=1)]
MetricName = Annotated[str, AfterValidator(_result)]


class PublishedColumn(Section):
    """A printed column, and what it is of ours."""

    label: Text
    metric: MetricName
    x: int | None = None
    corpus: str | None = None
    where: Where = {}  # noqa: RUF012

    @model_validator(mode="after")
    def _point_of_a_curve(self) -> Self:
        metric = metric_named(self.metric)
        by = "" if metric is None else metric.by
        if by and self.x is None:
            raise SectionError([(("x",), f"is missing: {self.metric} is a curve by {by}")])
        if self.x is not None and not by:
            raise SectionError([(("x",), f"found {self.x}, and {self.metric} is no curve")])
        return self


class PublishedRow(Section):
    """A printed row: a number for each column, and what is printed of their spread and mean."""

    label: Text
    where: Where
    values: tuple[float | None, ...] = Field(strict=False)
    spreads: tuple[float | None, ...] | None = Field(default=None, strict=False)
    average: float | None = None


class Average(Section):
    """The printed column of averages, and which metric is their like here.

    `divided_by` is what the sum of a row was divided by where that is not the number of columns;
    what stands beside ours is the mean of the columns.
    """

    metric: MetricName | None = None
    divided_by: Annotated[int, Field(gt=0)] | None = None


class PublishedTable(Section):
    """One table or figure of a paper. Our unit is the printed one times `factor`."""

    paper: Text
    arxiv: Annotated[str, Field(pattern=r"^\d{4}\.\d{5}$")]
    place: Text
    title: Text
    setting: Where = {}  # noqa: RUF012
    trained_length: Annotated[int, Field(gt=0)] | None = None
    factor: Annotated[float, Field(gt=0)] = 1.0
    says: Annotated[tuple[Text, ...], Field(strict=False, min_length=1)]
    notes: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    spread: Text | None = None
    columns: Annotated[tuple[PublishedColumn, ...], Field(strict=False)] = ()
    rows: Annotated[tuple[PublishedRow, ...], Field(strict=False)] = ()
    average: Average | None = None

    @property
    def source(self) -> str:
        """Where it is printed: 'Hua et al., …, arXiv 2412.17739, Table 2'."""
        return f"{self.paper}, arXiv {self.arxiv}, {self.place}"

    @property
    def address(self) -> str:
        """The paper's page."""
        return f"https://arxiv.org/abs/{self.arxiv}"

    @property
    def all_columns(self) -> tuple[PublishedColumn, ...]:
        """The columns, and that of the averages where ours has its like."""
        if self.average is None or self.average.metric is None:
            return self.columns
        return (*self.columns, PublishedColumn(label="average", metric=self.average.metric))

    def value(self, row: PublishedRow, column: PublishedColumn) -> float | None:
        """A number in our unit; None where the paper prints none."""
        if column in self.columns:
            found = row.values[self.columns.index(column)]
        else:
            found = statistics.mean(value for value in row.values if value is not None)
        return None if found is None else found * self.factor

    def spread_of(self, row: PublishedRow, column: PublishedColumn) -> float | None:
        """What is printed behind ±, as it is printed."""
        if row.spreads is None or column not in self.columns:
            return None
        return row.spreads[self.columns.index(column)]

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        found: list[tuple[FieldPath, str]] = []
        if bool(self.rows) is not bool(self.columns):
            found.append((("columns",), "rows and columns need each other"))
        for name in ("columns", "rows"):
            names = [one.label for one in getattr(self, name)]
            found += [
                ((name, i, "label"), f"names {one!r} twice")
                for i, one in enumerate(names)
                if one in names[:i]
            ]
        for i, row in enumerate(self.rows):
            for name, values in (("values", row.values), ("spreads", row.spreads)):
                if values is not None and len(values) != len(self.columns):
                    message = f"has {len(values)} numbers for {len(self.columns)} columns"
                    found.append((("rows", i, name), message))
            for name, given, wanted in (
                ("spreads", row.spreads, self.spread),
                ("average", row.average, self.average),
            ):
                if (given is None) is not (wanted is None):
                    message = f"stands in a row and at the top, or in neither: {name}"
                    found.append((("rows", i, name), message))
        if found:
            raise SectionError(found)
        return self


def load_published(name: str) -> PublishedTable:
    """The file of a name such as 'fope/table2'. Raises SweepError with every problem of it."""
    return read_published(paper_path(name))


def read_published(path: Path) -> PublishedTable:
    """A file of this form. Raises SweepError with every problem of it."""
    document = Document(path)
    problems = document.problems

    def problem(at: FieldPath, message: str) -> None:
        problems.append(document.locate(Problem(at, message)))

    try:
        published = PublishedTable.model_validate(document.value)
    except ValidationError as error:
        for at, message in messages_of(error, PublishedTable):
            problem(at, message)
    if problems:
        raise SweepError(problems)
    return published
