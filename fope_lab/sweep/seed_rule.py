"""The seeds of a sweep: a list of them, or a rule that adds seeds only where they are needed.

    seeds: [0, 1, 2]
    seeds: {first: 5, at_most: 20, until: claims}
    seeds: {first: 5, at_most: 20, until: {stopped_early: 5}}

With a rule, the sweep has the stages of all seeds 0 … at_most − 1. Those of the first seeds always
run, and what the store holds of them decides which others do (report/claims/).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import EachOnce, Parsed
from fope_lab.config.options import Option, Options, PositiveInt, entry_of
from fope_lab.config.problems import ConfigError, Problem, shown, unknown_name

Seed = Annotated[int, Interval(ge=0, lt=2**32)]
SEED_LIST = Option(Annotated[tuple[Seed, ...], MinLen(1), EachOnce()], MISSING)
CLAIMS: Literal["claims"] = "claims"
UNTIL = ("seeds", "until")
"""The field of a sweep file that says when to stop adding seeds."""
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
        _parse_seeds,
        lambda: {"anyOf": [SEED_LIST.json_schema(), entry_of(SeedRule).json_schema()]},
    ),
]
"""A list of seeds, or a rule that adds seeds where they are needed."""
