"""An analysis as a sweep file or a command names it: `decay`, or `{type: decay, option: value}`."""

from __future__ import annotations

from fope_lab.analysis.base import ANALYSIS_TYPES, Analysis
from fope_lab.config.registry import Registry
from fope_lab.data.problems import DataError

ANALYSES: Registry[Analysis] = Registry("analysis", ANALYSIS_TYPES, error=DataError)
"""The registry of analyses, by name."""
parse_analysis = ANALYSES.parse
analysis_names = ANALYSES.names
analysis_json_schema = ANALYSES.json_schema
