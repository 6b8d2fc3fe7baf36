"""Analyses of the three papers: each a file with its functions of arrays, and its figure.

Importing this package imports neither torch nor matplotlib.
"""

from __future__ import annotations

from fope_lab.analysis.base import Analysis, Arrays, Subject
from fope_lab.analysis.spec import analysis_json_schema, analysis_names, parse_analysis

__all__ = [
    "Analysis",
    "Arrays",
    "Subject",
    "analysis_json_schema",
    "analysis_names",
    "parse_analysis",
]
