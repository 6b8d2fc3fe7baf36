"""What the annotation of an option says beside its type: the values allowed, and the meaning.

An exported model contains a copy of this module, so it uses the standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Interval:
    """The interval that a number must be in; `ge` and `le` are inclusive ends, `gt` and `lt` are
    exclusive. A float in an interval is finite."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        schema = handler(source)
        for name in ("ge", "gt", "le", "lt"):
            end = getattr(self, name)
            if end is not None:
                schema[name] = end
        if schema["type"] == "float":
            schema["allow_inf_nan"] = False
        return schema


@dataclass(frozen=True)
class Doc:
    """The meaning of an option, which the JSON Schema and the command line show."""

    text: str
