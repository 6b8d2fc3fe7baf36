"""A task to train on beside text: an endless source of rows with questions and answers."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from fope_lab.data.options import set_options
from fope_lab.data.problems import DataError
from fope_lab.data.rows import RowSource
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer, Tokenizer

LONGEST_PROMPT = 10_000
"""In tokens of the byte tokenizer; every prompt fits a greater length."""


class Task(ABC):
    """A frozen dataclass whose fields are the task's options in a sweep file."""

    task: ClassVar[str]
    """What a sweep file calls it."""
    has_held_out: ClassVar[bool] = False
    """Whether some of its rows are kept from training."""

    def canonical(self) -> dict[str, Any]:
        """The shortest description; parsing it gives the task back."""
        return {"task": self.task, **set_options(self)}

    @abstractmethod
    def check(self, tokenizer: Tokenizer, length: int) -> None:
        """Raises DataError if the tokenizer can't write the task's rows, or `length` tokens are
        too few for them."""

    @abstractmethod
    def rows(self, tokenizer: Tokenizer, length: int, seed: int) -> RowSource:
        """Rows of `length` + 1 tokens to train on. Raises DataError as `check` does."""

    def held_out_rows(self, tokenizer: Tokenizer, length: int) -> RowSource:
        """Rows of `length` + 1 tokens that are never trained on, the same for every seed.

        Raises DataError as `check` does, and if the task has none.
        """
        raise DataError(f"the task {self.task} has no held-out rows")


@functools.lru_cache
def task_problem(task: Task, length: int, tokenizer: TokenizerRecipe) -> str | None:
    """Why the task's prompts don't fit a length; None if they do, or if only running can tell."""
    if tokenizer != "byte" or length > LONGEST_PROMPT:
        return None
    try:
        task.check(ByteTokenizer(), length)
    except DataError as error:
        return str(error)
    return None
