"""A part of a sweep file, and the types of its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

T = TypeVar("T", bound=Sequence[int])
PositiveInt = Annotated[int, Field(gt=0)]


def each_once(values: T) -> T:
    """For pydantic: a list of numbers that names none of them twice."""
    seen: set[int] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"names {value} twice")
        seen.add(value)
    return values


Lengths = Annotated[
    tuple[Annotated[int, Field(ge=2)], ...],
    Strict(False),
    Field(min_length=1),
    AfterValidator(each_once),
]


class Section(BaseModel):
    """A part of a sweep file: unknown keys are errors, and text is never read as a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    excluded_from_key: ClassVar[frozenset[str]] = frozenset()
    """Fields that can't change a stage's numbers, and so are left out of its key."""
    outside_file: ClassVar[Mapping[str, str]] = {}
    """Fields that a sweep file does not give here, and what it gives instead."""
