"""What the stages have that measure a model."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fope_lab.data.problems import DataError
from fope_lab.data.tasks.base import Task
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.stages.base import ChildConfig, StageConfig
from fope_lab.stages.section import PositiveInt

LONGEST_PROMPT = 10_000
"""In tokens of the byte tokenizer; every prompt fits a greater length."""


class ForwardPass(NamedTuple):
    """`sequences` of `length` tokens that a model reads, forward only."""

    length: int
    sequences: int


class EvaluationConfig(ChildConfig):
    """What a stage reads is known before it runs, as far as a plan can tell."""

    excluded_from_key = StageConfig.excluded_from_key | {"batch_tokens"}

    batch_tokens: PositiveInt = 16_384

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """What the field `tasks` may name, for a kind that has one."""
        return ()

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """All that the model reads; None where only running can tell."""
        return None


@functools.lru_cache
def task_misfit(task: Task, length: int, tokenizer: TokenizerRecipe) -> str | None:
    """Why the task's prompts don't fit a length; None if they do, or if only running can tell."""
    if tokenizer != "byte" or length > LONGEST_PROMPT:
        return None
    try:
        task.check(ByteTokenizer(), length)
    except DataError as error:
        return str(error)
    return None
