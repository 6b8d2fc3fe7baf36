"""The shape of a sweep file: its top level, checked.

The sections of stages are checked later, at each point of the grid, where every axis has a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import core_schema

from fope_lab.config.problems import FieldPath, shown
from fope_lab.config.pydantic_errors import problems_of
from fope_lab.config.yaml_document import Document
from fope_lab.papers.index import NameOfPaper
from fope_lab.stages import Section, each_once
from fope_lab.sweep.kinds import FILE_KINDS, KINDS
from fope_lab.sweep.problem_collector import ProblemCollector
from fope_lab.sweep.report_section import ReportSection


@dataclass(frozen=True)
class Named:
    """Annotation of a text that matches `pattern`; an error describes the pattern by `words`."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{self.pattern}$"}

    def _check(self, name: str) -> str:
        if not re.fullmatch(self.pattern, name):
            raise ValueError(f"found {shown(name)}, needs {self.words}")
        return name


SweepName = Annotated[
    str,
    Named(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}",
        "up to 100 letters, digits, - _ and ., a letter or digit in front",
    ),
]
SectionName = Annotated[
    str,
    Named(r"[A-Za-z][A-Za-z0-9_-]{0,99}", "up to 100 letters, digits, - and _, a letter in front"),
]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Axes = dict[str, Annotated[list[Any], Field(min_length=1)]]


class PreparationResources(Section):
    """What a preparation stage occupies while it runs. It needs no GPU."""

    cpus: Annotated[
        int,
        Field(
            ge=1,
            description="Number of processes that tokenize a corpus. The result is the same.",
        ),
    ] = 1


class Preparation(Section):
    """How the stages run that prepare data and tokenizers for the others."""

    resources: PreparationResources = PreparationResources()


class SweepFile(Section):
    """The top level of a sweep file, with the sections of its stages as they stand in the file."""

    name: Annotated[SweepName, Field(description="Name of the sweep and of its MLflow experiment.")]
    description: str = ""
    seeds: Annotated[
        list[Seed],
        Field(
            min_length=1,
            description="Seeds of the training stages. Other stages have those of their parents.",
        ),
        AfterValidator(each_once),
    ] = [0]  # noqa: RUF012
    stages: Annotated[
        dict[SectionName, dict[str, Any]],
        Field(min_length=1, description="Sections of the stages, by name."),
    ]
    grid: Annotated[
        Axes,
        Field(description="Lists of values by stage.field.path. The sweep has every combination."),
    ] = {}  # noqa: RUF012
    zip: Annotated[
        Axes,
        Field(
            description="Lists of one length by stage.field.path. Together they are one axis: the"
            " first value of each list, then the second of each, and so on."
        ),
    ] = {}  # noqa: RUF012
    include: Annotated[
        list[dict[str, Any]],
        Field(description="Grid points in addition to the grid, each with a value for every axis."),
    ] = []  # noqa: RUF012
    exclude: Annotated[
        list[dict[str, Any]],
        Field(description="Grid points to leave out: those that have all values of an entry."),
    ] = []  # noqa: RUF012
    prepare: Annotated[
        Preparation,
        Field(description="How data and tokenizers are prepared. It changes no stage's key."),
    ] = Preparation()
    report: ReportSection = ReportSection()
    paper: Annotated[
        Annotated[str, NameOfPaper()] | None,
        Field(description="Published numbers that the report compares with, as in fope/table2."),
    ] = None

    def references(self) -> Iterator[tuple[FieldPath, Any]]:
        """Yield every value of a `from`, in a stage or on an axis, with its place in the file."""
        for name, section in self.stages.items():
            if isinstance(section, dict):
                yield ("stages", name, "from"), section.get("from")
        for part, axes in (("grid", self.grid), ("zip", self.zip)):
            for axis, values in axes.items():
                if axis.endswith(".from"):
                    yield from (((part, axis, i), value) for i, value in enumerate(values))
        for i, point in enumerate(self.include):
            for axis, value in point.items():
                if axis.endswith(".from"):
                    yield ("include", i, axis), value


def read_sweep_file(document: Document, problems: ProblemCollector) -> SweepFile | None:
    """Return the top level of a file without the fields that are wrong, which are reported.

    A stage's section that is not a mapping stays, so that a reference to the stage is not reported
    too. Returns None if too little is right to go on.
    """
    value = document.value
    if not isinstance(value, dict):
        problems.add((), f"found {shown(value)}, needs a mapping with name and stages")
        return None
    try:
        file = SweepFile.model_validate(value)
    except ValidationError as error:
        for problem in problems_of(error, SweepFile):
            problems.add(problem.path, problem.message)
        if not isinstance(value.get("stages"), dict) or not value["stages"]:
            return None
        file = _right_fields(value, [detail["loc"] for detail in error.errors()])
    for name in file.stages.keys() & KINDS.keys() - set(FILE_KINDS):
        problems.add(("stages", name), "this name is reserved for a preparation stage")
    return file


def _right_fields(value: dict[str, Any], wrong: list[tuple[int | str, ...]]) -> SweepFile:
    """Return the top level without the fields and axes that have a problem in `wrong`."""
    right: dict[str, Any] = {"name": "", "stages": value["stages"]}
    for name in value.keys() & SweepFile.model_fields.keys() - right.keys():
        inside = {loc[1] for loc in wrong if loc[0] == name and len(loc) > 1}
        if not any(loc[0] == name for loc in wrong):
            right[name] = _field(name, value[name])
        elif inside and name in ("grid", "zip"):
            right[name] = {axis: v for axis, v in value[name].items() if axis not in inside}
    return SweepFile.model_construct(**right)


def _field(name: str, value: Any) -> Any:
    """Return a right field's value, as an object if the field is a section."""
    field_type = SweepFile.model_fields[name].annotation
    if isinstance(field_type, type) and issubclass(field_type, Section):
        return field_type.model_validate(value)
    return value
