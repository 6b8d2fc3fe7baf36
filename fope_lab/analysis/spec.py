"""An analysis as a sweep file or a command names it: `decay`, or `{type: decay, option: value}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.analysis.base import Analysis
from fope_lab.analysis.discovery import discover
from fope_lab.config.problems import Problem, unknown_name
from fope_lab.data.options import build, schema
from fope_lab.data.problems import DataError


def analysis_names() -> list[str]:
    """The names of all analyses, in alphabetical order."""
    discover()
    return sorted(Analysis.types)


def parse_analysis(value: Any) -> Analysis:
    """The analysis that a name or a mapping stands for. Raises DataError with every problem."""
    names = analysis_names()
    if isinstance(value, str):
        value = {"type": value}
    if not isinstance(value, Mapping):
        message = f"found {value!r}, needs an analysis's name or a mapping with its type"
        raise DataError(Problem((), message))
    options = dict(value)
    name = options.pop("type", None)
    if not isinstance(name, str) or name not in names:
        at = ("type",) if len(value) > 1 else ()
        raise DataError(unknown_name(at, "analysis", name, names))
    return build(Analysis.types[name], options, f"analysis {name}")


def analysis_json_schema() -> dict[str, Any]:
    """The JSON Schema of an analysis in a sweep file."""
    names = analysis_names()
    described = [schema(Analysis.types[name], {"type": name}) for name in names]
    return {"anyOf": [{"enum": names}, *described]}
