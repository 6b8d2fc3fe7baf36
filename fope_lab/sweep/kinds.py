"""Every kind of stage, by its name: those that train or prepare data, and all evaluations."""

from __future__ import annotations

from fope_lab.evaluation.discovery import evaluations
from fope_lab.stages import (
    CopyTokenizer,
    Extend,
    Finetune,
    PrepareData,
    Pretrain,
    StageConfig,
    TrainTokenizer,
)

_CLASSES: tuple[type[StageConfig], ...] = (
    PrepareData,
    TrainTokenizer,
    CopyTokenizer,
    Pretrain,
    Extend,
    Finetune,
    *evaluations(),
)
KINDS = {
    kind.model_fields["kind"].annotation.__args__[0]: kind  # type: ignore[union-attr]
    for kind in _CLASSES
}
FILE_KINDS = [kind for kind, cls in KINDS.items() if cls.user_facing]
"""The kinds that a sweep file may name."""
