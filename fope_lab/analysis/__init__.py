"""The papers' analyses, one per file: functions of arrays, and a figure of the result.

Importing this package imports neither torch nor matplotlib.
"""

from __future__ import annotations

from fope_lab.analysis.base import (
    Analysis,
    Arrays,
    Subject,
    analysis_json_schema,
    analysis_names,
    parse_analysis,
)

__all__ = [
    "Analysis",
    "Arrays",
    "Subject",
    "analysis_json_schema",
    "analysis_names",
    "parse_analysis",
]
