"""What the stages of kind `select` chose, as their results say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages import Select
from fope_lab.stages.internal import SELECTED


def choice_of(result: StageResult) -> Any:
    """The value that a stage of kind `select` chose; None if it has not chosen yet."""
    return result.record.recorded.get(SELECTED, {}).get("value")


def chosen_keys(results: Iterable[StageResult]) -> frozenset[str]:
    """The keys of the candidates that were chosen."""
    found = set()
    for result in results:
        spec = result.stage.spec
        if isinstance(spec, Select):
            role = spec.chosen_role(result.record.recorded)
            if role is not None:
                found.add(result.stage.parents[role])
    return frozenset(found)
