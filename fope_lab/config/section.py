"""A part of a configuration file: a frozen dataclass, and what its values must be together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import MinLen

from fope_lab.config.annotations import Interval
from fope_lab.config.checks import EachOnce
from fope_lab.config.problems import Problem

PositiveInt = Annotated[int, Interval(ge=1)]
Lengths = Annotated[tuple[Annotated[int, Interval(ge=2)], ...], MinLen(1), EachOnce()]
"""Different context lengths in tokens, each at least 2."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a configuration file. Reading it checks its values, each and together."""

    excluded_from_key: ClassVar[frozenset[str]] = frozenset()
    """Fields that the key leaves out: those that can't change a number, and `from`, since the key
    has the parents."""

    def problems(self) -> Iterable[Problem]:
        """What is wrong with the values together."""
        return ()

    def idle_options(self) -> Mapping[str, str]:
        """The options that have no effect beside the other values, and why.

        A file that gives one is wrong, even if it gives the default.
        """
        return {}
