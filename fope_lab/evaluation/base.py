"""What an evaluation is: options, the metrics that it measures, and a run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fope_lab.stages.base import ChildConfig, StageConfig
from fope_lab.stages.section import PositiveInt

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context


class ForwardPass(NamedTuple):
    """`sequences` of `length` tokens that a model reads, forward only."""

    length: int
    sequences: int


class Evaluation(StageConfig):
    """A stage that trains nothing: it measures a model, or draws what a paper draws of none."""

    entry_point = "fope_lab.evaluation.run:run"

    @abstractmethod
    def run(self, context: Context) -> dict[str, Any]:
        """Measure, log what `metrics` declares, and return what else the numbers depend on.

        A report lists what is returned among the stage's settings.
        """


class ModelEvaluation(Evaluation, ChildConfig):
    """An evaluation of the model that another stage, or a checkpoint, leaves."""

    excluded_from_key = StageConfig.excluded_from_key | {"batch_tokens"}

    batch_tokens: PositiveInt = 16_384

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """The names that the field `tasks` may hold, for a kind that has this field."""
        return ()

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """All that the model reads; None where only running can tell."""
        return None
