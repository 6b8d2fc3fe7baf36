"""The models that stages leave, as MLflow's LoggedModels, and what was measured of each.

A model's weights stay in the store: its tag `checkpoint` says where. It belongs to the run of the
stage that made it. The numbers of an evaluation belong to the model that it measured, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fope_lab.data.roles import MODEL
from fope_lab.stages.base import STAGE_TYPES
from fope_lab.store import Row, Store
from fope_lab.store.checkpoint import Checkpoint
from fope_lab.sweep.made_by import output_digest
from fope_lab.tracking.parameters import model_parameters
from fope_lab.tracking.points import Point, points
from fope_lab.tracking.view import Outline, StageOutline, stage_tags

CHECKPOINT = "checkpoint"
"""The tag of a model, and of the run that made it: the checkpoint's folder."""
MODEL_ID = "model_id"
"""The tag of a run that started from a model or measured it: the model's id in MLflow."""
REFUSED = re.compile(r"[/:.%\"']")
"""What MLflow refuses in the name of a model."""


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """What MLflow is to know of a model; `step` is that of its checkpoint."""

    name: str
    kind: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    step: int

    @property
    def checkpoint(self) -> str:
        """The folder of the checkpoint."""
        return self.tags[CHECKPOINT]


def model_record(
    outline: Outline,
    stage: StageOutline,
    stages: Mapping[str, StageOutline],
    checkpoint: Path | None,
) -> ModelRecord | None:
    """The model that a finished stage left in `checkpoint`, or None if it left none.

    `stages` has the stages of the sweep by key.
    """
    parsed = None if checkpoint is None else Checkpoint.parse(checkpoint.absolute())
    if parsed is None or not leaves_model(stage):
        return None
    own = {
        "label": stage.label,
        "kind": stage.kind,
        "key": stage.key,
        "seed": stage.seed,
        CHECKPOINT: parsed.path,
    }
    return ModelRecord(
        name=REFUSED.sub("_", outline.names[stage.key]),
        kind=stage.kind,
        params=model_parameters(stage, stages),
        tags=stage_tags(outline, stage, own),
        step=parsed.step,
    )


def leaves_model(stage: StageOutline) -> bool:
    """Whether a stage makes a model, rather than reading one."""
    kind = STAGE_TYPES.all().get(stage.kind)
    return kind is not None and kind.leaves_model


def reads_same_model(stage: StageOutline, stages: Mapping[str, StageOutline], store: Store) -> bool:
    """Whether the model that a finished stage read is still there as it was, as far as is known.

    `stages` has the stages of the sweep by key.
    """
    read = store.folder(stage.kind, stage.key).parents_read().get(MODEL)
    parent = stages.get(stage.parents.get(MODEL, ""))
    if read is None or parent is None:
        return True
    return output_digest(store.folder(parent.kind, parent.key)) in (None, read)


def measured_points(rows: Iterable[Row]) -> list[Point]:
    """What an evaluation says of its model: the last value of each metric but whole curves.

    A point of a curve over lengths is there as a metric of its own, such as perplexity/64. A value
    that is not finite is left out, because MLflow stores NaN of a model as 0. The machine's load is
    left out, too.
    """
    last = {point.name: point for row in rows for point in points(row)}
    return [
        point
        for name, point in last.items()
        if "_by_" not in name and not name.startswith("system/") and math.isfinite(point.value)
    ]
