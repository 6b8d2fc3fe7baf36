"""A sweep file, read and checked: `load_sweep`.

Reading goes in three steps: the file's own shape here, the cells of its grid (expand.py), and the
stages of each cell (resolve.py). A step goes on with what the one before it found right, so that
the problems of all steps are raised together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import core_schema

from fope_lab.config.problems import FieldPath, Problem, SweepError, shown
from fope_lab.config.pydantic_errors import messages_of
from fope_lab.config.yaml_document import Document
from fope_lab.papers.index import NameOfPaper
from fope_lab.stages import Section, each_once
from fope_lab.sweep.cross_file import Foreign, Library
from fope_lab.sweep.expand import expand_cells, same_value
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.kinds import FILE_KINDS, KINDS
from fope_lab.sweep.problem_collector import Findings
from fope_lab.sweep.report_check import report_problems
from fope_lab.sweep.report_section import ReportSection
from fope_lab.sweep.resolve import Resolver


@dataclass(frozen=True)
class Named:
    """Annotation: a text that matches `pattern`, which `words` say in an error."""

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


Name = Annotated[
    str,
    Named(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}",
        "up to 100 letters, digits, - _ and ., a letter or digit in front",
    ),
]
StageName = Annotated[
    str,
    Named(r"[A-Za-z][A-Za-z0-9_-]{0,99}", "up to 100 letters, digits, - and _, a letter in front"),
]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Axes = dict[str, Annotated[list[Any], Field(min_length=1)]]


class Processors(Section):
    """What fope-lab's own stages occupy: they need no GPU."""

    cpus: Annotated[
        int, Field(ge=1, description="processes that tokenise a corpus; their number is no matter")
    ] = 1


class Prepare(Section):
    """How fope-lab's own stages run, which prepare data and tokenizers for the others."""

    resources: Processors = Processors()


class SweepFile(Section):
    """The top level of a sweep file; a stage's section is checked for each cell of the grid."""

    name: Annotated[Name, Field(description="of the sweep, and of its MLflow experiment")]
    description: str = ""
    seeds: Annotated[
        list[Seed],
        Field(min_length=1, description="of the training stages; others inherit them"),
        AfterValidator(each_once),
    ] = [0]  # noqa: RUF012
    stages: Annotated[
        dict[StageName, dict[str, Any]], Field(min_length=1, description="by their names")
    ]
    grid: Annotated[Axes, Field(description="values by stage.field.path; these axes multiply")] = {}  # noqa: RUF012
    zip: Annotated[
        Axes, Field(description="equally long lists by stage.field.path: one axis together")
    ] = {}  # noqa: RUF012
    include: Annotated[
        list[dict[str, Any]], Field(description="cells beside the grid's, with every axis set")
    ] = []  # noqa: RUF012
    exclude: Annotated[
        list[dict[str, Any]], Field(description="cells of the grid to leave out, by some axes")
    ] = []  # noqa: RUF012
    prepare: Annotated[
        Prepare, Field(description="how data and tokenizers are prepared; changes no key")
    ] = Prepare()
    report: ReportSection = ReportSection()
    paper: Annotated[
        Annotated[str, NameOfPaper()] | None,
        Field(description="whose published numbers stand beside these, as in fope/table2"),
    ] = None


@dataclass(frozen=True)
class Sweep:
    """A checked sweep: its stages in an order in which parents come before their children.

    `by_name` has the stages of each name in the file with the axes that lead to them; stages that
    are equal occur once in `stages`, and there once for each way.
    """

    path: Path
    name: str
    description: str
    seeds: tuple[int, ...]
    stages: tuple[Stage, ...]
    by_name: Mapping[str, tuple[Stage, ...]] = field(default_factory=dict, repr=False)
    report: ReportSection = field(default_factory=ReportSection)
    paper: str | None = None


def load_sweep(path: str | Path) -> Sweep:
    """Read a sweep file. Raises SweepError holding every problem found."""
    return Library(_read).sweep(Path(path).absolute())


def parse_sweep(text: str, path: Path) -> Sweep:
    """The sweep that a file `path` with this text would be: relative paths start from its folder.

    Raises SweepError as load_sweep does.
    """
    own = path.absolute()

    def read(wanted: Path, library: Library) -> Sweep:
        return _read(wanted, library, text if wanted == own else None)

    return Library(read).sweep(own)


def _read(path: Path, library: Library, text: str | None = None) -> Sweep:
    document = Document(path, text)
    problems = document.problems

    def problem(at: FieldPath, message: str) -> None:
        problems.append(document.locate(Problem(at, message)))

    file = _shape(document, problem)
    if file is None:
        raise SweepError(problems)
    for name in KINDS.keys() - FILE_KINDS:
        if name in file.stages:
            problem(("stages", name), "is the name of fope-lab's own stages; choose another")
    foreign = Foreign(path, library)
    selectors = _selectors(file, foreign, problems, problem)
    axes_known = not any(one.path[:1] in (("grid",), ("zip",), ("include",)) for one in problems)
    before = len(problems)
    cells = expand_cells(file, document, selectors, problems)
    findings = Findings(document, cells)
    axes_known = axes_known and len(problems) == before
    resolver = Resolver(file, document, foreign, library.memo, findings, axes_known)
    for cell in cells:
        resolver.resolve(cell)
    problems.extend(findings.problems())
    by_name = {name: tuple(stages) for name, stages in resolver.by_name.items()}
    for at, message in report_problems(file.report, None if problems else by_name):
        problem(at, message)
    if problems:
        raise SweepError(problems)
    stages = tuple(resolver.stages.values())
    return Sweep(
        path=path,
        name=file.name,
        description=file.description,
        seeds=tuple(file.seeds),
        stages=stages,
        by_name=by_name,
        report=file.report,
        paper=file.paper,
    )


def _shape(document: Document, problem: Callable[[FieldPath, str], None]) -> SweepFile | None:
    """The top level of the file; what is wrong with it is reported and left out.

    A stage that is no mapping stays, so that those that name it are not called wrong. None if
    there is nothing to go on with.
    """
    value = document.value
    if not isinstance(value, dict):
        problem((), f"found {shown(value)}, needs a mapping with name and stages")
        return None
    try:
        return SweepFile.model_validate(value)
    except ValidationError as error:
        for at, message in messages_of(error, SweepFile):
            problem(at, message)
        wrong = [detail["loc"] for detail in error.errors()]
    stages = value.get("stages")
    if not isinstance(stages, dict) or not stages:
        return None
    right: dict[str, Any] = {"name": "", "stages": stages}
    for name in value.keys() & SweepFile.model_fields.keys() - right.keys():
        inside = {loc[1] for loc in wrong if loc[0] == name and len(loc) > 1}
        if not any(loc[0] == name for loc in wrong):
            right[name] = _field(name, value[name])
        elif inside and name in ("grid", "zip"):
            right[name] = {axis: v for axis, v in value[name].items() if axis not in inside}
    return SweepFile.model_construct(**right)


def _field(name: str, value: Any) -> Any:
    """The value of a right field, a section as what it is."""
    of = SweepFile.model_fields[name].annotation
    if isinstance(of, type) and issubclass(of, Section):
        return of.model_validate(value)
    return value


def _selectors(
    file: SweepFile,
    foreign: Foreign,
    problems: list[Problem],
    problem: Callable[[FieldPath, str], None],
) -> dict[str, list[Any]]:
    """The axes of the stages in other files that this file names, each with its values."""
    found: dict[str, list[Any]] = {}
    for at, reference in _references(file):
        if not isinstance(reference, str) or "#" not in reference:
            continue
        try:
            stages = foreign.stages(reference)
        except SweepError as error:
            problems.extend(error.problems)
        except LookupError as error:
            problem(at, str(error.args[0]))
        else:
            for axis, value in (item for stage in stages for item in stage.axes.items()):
                values = found.setdefault(axis, [])
                if not any(same_value(value, known) for known in values):
                    values.append(value)
    return found


def _references(file: SweepFile) -> Iterator[tuple[FieldPath, Any]]:
    """Every `from` of a file, in a stage or on an axis, with its place."""
    for name, section in file.stages.items():
        if isinstance(section, dict):
            yield ("stages", name, "from"), section.get("from")
    for part in ("grid", "zip"):
        for axis, values in getattr(file, part).items():
            if axis.endswith(".from"):
                yield from (((part, axis, i), value) for i, value in enumerate(values))
    for i, values in enumerate(file.include):
        for axis, value in values.items():
            if axis.endswith(".from"):
                yield ("include", i, axis), value
