"""The amount of work of a stage, in the terms from which its time is estimated."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fope_lab.evaluation.base import ModelEvaluation
from fope_lab.model.config import flops_per_token
from fope_lab.stages import StageConfig, TrainingConfig
from fope_lab.stages.key import config_json, digest
from fope_lab.sweep.cost import computed_widths, rows_at_once
from fope_lab.sweep.graph import Stage

TRAINING, EVALUATION = "training", "evaluation"
"""Families of similar kinds: timings of one kind help to estimate another."""
NOT_SETTINGS = ("from", "embedding", "resources", "batch_tokens", "seed", "tokenizer")
"""Fields that do not change how much work a stage is."""


@dataclass(frozen=True)
class Workload:
    """The work of one worker of a stage.

    `family` is TRAINING, EVALUATION or the kind itself. `batches` counts passes of the model,
    `tokens` and `flops` what they compute; they are None where they are unknown until run,
    and `flops` is then that of one token. `question` is a digest of the stage's settings without
    the model's, so that stages with the same settings on other models can be compared. `share` is
    the part of a GPU that the worker has, 0 on the CPU, and `threads` how many threads it computes
    with there. `width` is the model's hidden_size; stages that older versions ran have none.
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
    threads: int = 1
    width: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether the FLOPs are known before the stage runs."""
        return self.tokens is not None and bool(self.flops)

    def part(self, share: float) -> Workload:
        """A share of the work, as of a training that ended before its last step."""
        return replace(
            self,
            batches=None if self.batches is None else round(self.batches * share),
            tokens=None if self.tokens is None else round(self.tokens * share),
            flops=None if self.flops is None else self.flops * share,
        )


def workload_of(stage: Stage) -> Workload:
    """The workload of a stage, from its configuration."""
    spec, cost = stage.spec, stage.cost
    tokens, flops, batches, family, precision = cost.tokens, cost.flops, None, stage.kind, "float32"
    size = spec.resources.size
    if isinstance(spec, TrainingConfig):
        family, precision = TRAINING, spec.train.precision
        rows = spec.train.share(size) // spec.data.length
        batches = spec.train.steps * -(-rows // rows_at_once(spec))
        of_batch = sum(width * count for width, count in computed_widths(spec).items())
        tokens = round(spec.train.steps * of_batch)
    elif isinstance(spec, ModelEvaluation):
        family = EVALUATION
        of_all = sum(
            -(-one.sequences // max(1, spec.batch_tokens // one.length))
            for one in spec.forward_passes() or ()
            if one.length
        )
        batches = -(-of_all // size)
    if tokens is None and stage.model_spec is not None:
        length = (spec.max_sequence_length() or ((), stage.model_spec.train_length))[1]
        flops = flops_per_token(stage.model_spec.model, length) / 3
    return Workload(
        kind=stage.kind,
        family=family,
        question=_question(spec),
        embedding=stage.model_spec.embedding.name if stage.model_spec else None,
        precision=precision,
        share=min(1.0, spec.resources.gpus),
        batches=batches,
        tokens=None if tokens is None else tokens // size,
        flops=None if flops is None else flops / (size if tokens is not None else 1),
        threads=1 if spec.resources.gpus else spec.resources.threads,
        width=stage.model_spec.model.hidden_size if stage.model_spec else None,
    )


def _question(spec: StageConfig) -> str:
    settings = config_json(spec).items()
    return digest({name: value for name, value in settings if name not in NOT_SETTINGS})
