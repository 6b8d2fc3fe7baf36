"""Runs a stage, and reads what its result.json says that it measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.evaluation.base import Evaluation
from fope_lab.evaluation.context import run
from fope_lab.stages.metric import ResultRecord
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store


def ran(
    stage: Evaluation, root: Path, parents: Mapping[str, Path], key: str = "key"
) -> tuple[StageFolder, dict[str, Any]]:
    """The folder of a stage that ran in the store at `root`, with its result."""
    folder = Store(root).folder(stage.kind, key)
    with folder.begin("test", {}) as attempt:
        attempt.finish(run(stage, attempt.writer, parents))
    result, progress = folder.result(), folder.progress()
    assert result is not None
    assert progress is None or progress["step"] == progress["total"]
    return folder, result


def measured(result: Mapping[str, Any]) -> dict[tuple[str, int | None], float]:
    """The values by metric and x, of a result that has the shape of all results."""
    return {(metric.name, metric.x): metric.value for metric in ResultRecord.parse(result).metrics}
