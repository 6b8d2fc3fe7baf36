"""The shape of a sweep file: its top level, checked.

The sections of stages are checked later, at each point of the grid, where every axis has a value.
The seeds are a list, or a rule that adds seeds only where they are needed:

    seeds: [0, 1, 2]
    seeds: {first: 5, at_most: 20, until: claims}
    seeds: {first: 5, at_most: 20, until: {stopped_early: 5}}

With a rule, the sweep has the stages of all seeds 0 … at_most − 1. Those of the first seeds always
run, and what the store holds of them decides which others do (report/claims/).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import EachOnce, KnownName, Parsed, Pattern
from fope_lab.config.options import Option, Options, PositiveInt, entry_of
from fope_lab.config.plugins import load_plugins
from fope_lab.config.problems import ConfigError, FieldPath, Problem, shown, unknown_name
from fope_lab.config.shipped import paper_names
from fope_lab.config.words import other_tool
from fope_lab.config.yaml_document import Document
from fope_lab.stages.base import STAGE_TYPES
from fope_lab.sweep.report_section import ReportSection

Seed = Annotated[int, Interval(ge=0, lt=2**32)]
SEED_LIST = Option(Annotated[tuple[Seed, ...], MinLen(1), EachOnce()], MISSING)
CLAIMS: Literal["claims"] = "claims"
UNTIL = ("seeds", "until")
"""The field of a sweep file that says when to stop adding seeds."""
ANCHORS = "x-"
"""The beginning of top-level keys that nothing reads: a place for YAML's anchors."""
MOST_LOOKED_AT = 200
"""Up to how many seeds the sequential test is exact (statistics/sequential.py)."""


@dataclass(frozen=True, kw_only=True)
class StoppedEarly(Options):
    """Seeds are added to each training until so many of its seeds have stopped early."""

    stopped_early: Annotated[
        PositiveInt,
        Doc("The number of seeds that must have stopped early. Means are over the first of them."),
    ]


def _parse_until(value: Any, base: Path) -> Any:
    rules = (CLAIMS, *entry_of(StoppedEarly).options)
    if isinstance(value, Mapping):
        for name in value:
            if name not in rules:
                raise ConfigError(unknown_name((), "rule", name, rules))
        if CLAIMS not in value:
            return entry_of(StoppedEarly).read(value, base)
    if value == CLAIMS:
        return CLAIMS
    if isinstance(value, str) and value not in rules:
        raise ConfigError(unknown_name((), "rule", value, rules))
    needs = "claims, or {stopped_early: 5} for a number of seeds"
    raise ConfigError(Problem((), f"found {shown(value)}", needs))


def _until_schema() -> dict[str, Any]:
    return {"anyOf": [{"const": CLAIMS}, entry_of(StoppedEarly).json_schema()]}


@dataclass(frozen=True, kw_only=True)
class SeedRule(Options):
    """Seeds are added to those that always run, where a rule asks for more."""

    first: Annotated[PositiveInt, Doc("The number of seeds that always run, from seed 0 on.")]
    at_most: Annotated[PositiveInt, Doc("The number of seeds that may run, from seed 0 on.")]
    until: Annotated[
        Literal["claims"] | StoppedEarly,
        Doc(
            "When to stop adding seeds. With claims, seeds are added to what a claim compares until"
            " a sequential test decides it. With {stopped_early: 5}, they are added to each"
            " training until five have stopped early."
        ),
        Parsed(_parse_until, _until_schema),
    ]

    @property
    def every_seed(self) -> tuple[int, ...]:
        return tuple(range(self.at_most))

    @property
    def always(self) -> int:
        """The number of seeds that always run: no fewer than must stop early."""
        wanted = self.until.stopped_early if isinstance(self.until, StoppedEarly) else 1
        return max(self.first, wanted)

    def problems(self) -> Iterator[Problem]:
        found, most = f"found {self.first}", f"no more than at_most ({self.at_most})"
        if self.first > self.at_most:
            yield Problem(("first",), found, most)
        if self.until == CLAIMS and self.first < 2:
            yield Problem(("first",), found, "at least 2: one seed decides no claim")
        if self.until == CLAIMS and self.at_most > MOST_LOOKED_AT:
            needs = f"at most {MOST_LOOKED_AT}, as far as the sequential test is exact"
            yield Problem(("at_most",), f"found {self.at_most}", needs)
        if isinstance(self.until, StoppedEarly) and self.until.stopped_early > self.at_most:
            found = f"found {self.until.stopped_early}"
            yield Problem(("until", "stopped_early"), found, most)


def _parse_seeds(value: Any, base: Path) -> tuple[int, ...] | SeedRule:
    if isinstance(value, Mapping):
        return entry_of(SeedRule).read(value, base)
    if not isinstance(value, list | tuple):
        raise ConfigError(Problem((), f"found {shown(value)}", "a list or a rule"))
    seeds: tuple[int, ...] = SEED_LIST.read(value)
    return seeds


Seeds = Annotated[
    tuple[int, ...] | SeedRule,
    Parsed(
        _parse_seeds, lambda: {"anyOf": [SEED_LIST.json_schema(), entry_of(SeedRule).json_schema()]}
    ),
]
"""A list of seeds, or a rule that adds seeds where they are needed."""

SweepName = Annotated[
    str,
    Pattern(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}",
        "up to 100 letters, digits, - _ and ., a letter or digit in front",
    ),
]
SectionName = Annotated[
    str,
    Pattern(
        r"[A-Za-z][A-Za-z0-9_-]{0,99}", "up to 100 letters, digits, - and _, a letter in front"
    ),
]
Axes = dict[str, Annotated[list[Any], MinLen(1)]]
Points = tuple[dict[str, Any], ...]
MOST_WRITTEN_SEEDS = 20
"""The most seeds that an error writes out."""


@dataclass(frozen=True, kw_only=True)
class PreparationResources(Options):
    """What a preparation stage occupies while it runs. It needs no GPU."""

    cpus: Annotated[
        PositiveInt, Doc("Number of processes that tokenize a corpus. The result is the same.")
    ] = 1


@dataclass(frozen=True, kw_only=True)
class Preparation(Options):
    """How the stages run that prepare data and tokenizers for the others."""

    resources: PreparationResources = PreparationResources()


@dataclass(frozen=True, kw_only=True)
class SweepFile(Options):
    """The top level of a sweep file, with the sections of its stages as they stand in the file."""

    name: Annotated[SweepName, Doc("Name of the sweep and of its MLflow experiment.")]
    description: Annotated[str, Doc("What the sweep is for. The report begins with it.")] = ""
    seeds: Annotated[
        Seeds,
        Doc(
            "Seeds of the training stages. Other stages have those of their parents. A list of"
            " seeds, or a rule such as {first: 5, at_most: 20, until: claims}, which adds seeds"
            " only where they are needed."
        ),
    ] = (0,)
    plugins: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Doc(
            "Code of one's own that the sweep uses: files such as ./mine.py, by their paths from"
            " the sweep file, and names of modules."
        ),
    ] = ()
    stages: Annotated[
        dict[SectionName, dict[str, Any]], MinLen(1), Doc("Sections of the stages, by name.")
    ]
    grid: Annotated[
        Axes, Doc("Lists of values by stage.field.path. The sweep has every combination.")
    ] = field(default_factory=dict)
    zip: Annotated[
        Axes,
        Doc(
            "Lists of one length by stage.field.path. Together they are one axis: the first value"
            " of each list, then the second of each, and so on."
        ),
    ] = field(default_factory=dict)
    include: Annotated[
        Points, Doc("Grid points in addition to the grid, each with a value for every axis.")
    ] = ()
    exclude: Annotated[
        Points, Doc("Grid points to leave out: those that have all values of an entry.")
    ] = ()
    max_stages: Annotated[
        PositiveInt,
        Doc(
            "Limit on stages and on grid points × seeds. A file that makes more is refused at once:"
            " a grid grows fast."
        ),
    ] = 20_000
    prepare: Annotated[
        Preparation, Doc("How data and tokenizers are prepared. It changes no stage's key.")
    ] = Preparation()
    report: ReportSection = field(default_factory=ReportSection)
    paper: Annotated[
        Annotated[str, KnownName("published table", paper_names)] | None,
        Doc("Published numbers that the report compares with, as in fope/table2."),
    ] = None

    @property
    def seed_rule(self) -> SeedRule | None:
        """The rule that says which seeds are needed; None for a list of seeds."""
        return self.seeds if isinstance(self.seeds, SeedRule) else None

    @property
    def every_seed(self) -> tuple[int, ...]:
        """The seeds of all stages, also of those that a rule may leave out."""
        return self.seeds.every_seed if isinstance(self.seeds, SeedRule) else self.seeds

    @functools.cached_property
    def selected_axes(self) -> dict[str, str]:
        """The axis in the grid of each section with a readable `select`."""
        found = {}
        for name, section in self.stages.items():
            match section:
                case {"select": {"over": str(over)}} if over:
                    found[name] = f"{name}.{over}"
        return found

    def too_many(self, found: str, at: str) -> Problem:
        """The problem of a section `at` that makes more of something than `max_stages` allows."""
        limit = f"allowed: at most {self.max_stages:,}, unless max_stages says more"
        return Problem((at,), f"makes {found} ({limit})")

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


def read_sweep_file(document: Document) -> tuple[SweepFile | None, list[Problem]]:
    """The top level of a file without what is wrong, None if much is, and what is wrong. A section
    that is not a mapping stays: references to it are right. Imports the plug-ins."""
    value = document.value
    if not isinstance(value, dict):
        return None, [no_mapping(value)]
    foreign = other_tool(value)
    if foreign is not None:
        sweep = "a sweep, which begins with name and stages; `fope-lab new` writes one"
        return None, [Problem((), f"looks like a {foreign}", sweep)]
    value = {key: item for key, item in value.items() if not key.startswith(ANCHORS)}
    given = value.get("plugins")
    names = given if isinstance(given, list) else []  # what is wrong is reported with the others
    try:
        named = [name for name in names if name and isinstance(name, str)]
        load_plugins(named, document.path.parent, ("plugins",))
    except ConfigError as error:
        return None, list(error.problems)
    problems: list[Problem] = []
    right, wrong = entry_of(SweepFile).right_values(value)
    for problem in wrong:
        count, needs = value.get("seeds"), problem.needs
        if problem.path == ("seeds",) and type(count) is int and 0 < count <= MOST_WRITTEN_SEEDS:
            needs = f"{needs}, such as {list(range(count))}"
        problems.append(replace(problem, needs=needs))
    stages = value.get("stages")
    if not isinstance(stages, dict) or not stages:
        return None, problems
    for axes in {"grid", "zip"} & value.keys() - right.keys():
        inside = {p.path[1] for p in wrong if p.path[0] == axes and p.path[1:]}
        if inside:
            right[axes] = {axis: v for axis, v in value[axes].items() if axis not in inside}
    file = SweepFile(**{"name": "", **right, "stages": stages})
    reserved = (name for name, kind in STAGE_TYPES.all().items() if not kind.user_facing)
    message = "this name is reserved for a preparation stage"
    problems += (Problem(("stages", name), message) for name in reserved if name in stages)
    return file, problems


def no_mapping(value: Any) -> Problem:
    fault = "is empty" if value is None else f"found {shown(value)}"
    return Problem((), fault, "a mapping with name and stages")
