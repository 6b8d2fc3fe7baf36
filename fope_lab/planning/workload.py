"""How much work a stage is, in the terms that its time is estimated by."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fope_lab.model.config import flops_per_token
from fope_lab.stages import EvaluationConfig, TrainingConfig
from fope_lab.sweep.keys import digest

if TYPE_CHECKING:
    from fope_lab.sweep.graph import Stage

TRAINING, EVALUATION = "training", "evaluation"
"""The families whose kinds are alike: what is learnt of one kind helps to estimate another."""
NOT_ASKED = ("from", "resources", "batch_tokens", "seed", "tokenizer")
"""Fields that don't say what a stage asks of a model."""


@dataclass(frozen=True)
class Work:
    """What one worker of a stage has to do.

    `family` is TRAINING, EVALUATION or the kind itself. `batches` are passes of the model, `tokens`
    and `flops` what they read and compute; None where only running can tell. Then `flops` is that
    of one token, by which stages of the same `question` (all that is asked, whatever the model)
    compare. `share` is the part of a GPU that the worker has, 0 on the CPU.
    """

    kind: str
    family: str
    question: str
    embedding: str | None
    precision: str
    share: float
    batches: int | None
    tokens: int | None
    flops: float | None

    @property
    def is_known(self) -> bool:
        """Whether its FLOPs are known before it runs."""
        return self.tokens is not None and bool(self.flops)

    def as_json(self) -> dict[str, Any]:
        """For the store."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Work:
        """Raises TypeError for the work of another version."""
        return cls(**value)


def work_of(stage: Stage) -> Work:
    """The work of a stage as its configuration has it."""
    spec, cost = stage.spec, stage.cost
    tokens, flops, batches, family, precision = cost.tokens, cost.flops, None, stage.kind, "float32"
    size = spec.resources.size
    if isinstance(spec, TrainingConfig):
        family, precision = TRAINING, spec.train.precision
        share = spec.train.batch_tokens // size
        batches = spec.train.steps * -(-share // min(spec.train.micro_batch_tokens or share, share))
    elif isinstance(spec, EvaluationConfig):
        family = EVALUATION
        batches = sum(
            -(-one.sequences // max(1, spec.batch_tokens // one.length))
            for one in spec.forward_passes() or ()
            if one.length
        )
    if tokens is None and stage.lineage is not None:
        length = (spec.max_sequence_length() or ((), stage.lineage.train_length))[1]
        flops = flops_per_token(stage.lineage.model, length) / 3
    return Work(
        kind=stage.kind,
        family=family,
        question=digest({k: v for k, v in stage.config.items() if k not in NOT_ASKED}),
        embedding=str(stage.lineage.embedding["type"]) if stage.lineage else None,
        precision=precision,
        share=min(1.0, spec.resources.gpus),
        batches=batches,
        tokens=None if tokens is None else tokens // size,
        flops=None if flops is None else flops / (size if tokens is not None else 1),
    )
