"""The work of a stage that is an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.evaluation.base import Evaluation
from fope_lab.evaluation.context import Context

if TYPE_CHECKING:
    from fope_lab.evaluation.shared_work import Workers
    from fope_lab.store import RunWriter


def run(
    spec: Evaluation,
    writer: RunWriter,
    parents: Mapping[str, Path],
    workers: Workers | None = None,
) -> dict[str, Any]:
    """Run an evaluation of the models in `parents`, and return the content of its result.json.

    All `workers` of a group call this and get the same numbers; only worker 0's writer writes.
    """
    context = Context(spec, writer, parents, workers)
    return context.record(spec.run(context)).as_json()
