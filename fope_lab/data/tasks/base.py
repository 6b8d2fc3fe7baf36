"""The base class of synthetic training tasks: endless rows of questions with their answers."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from fope_lab.config.named_types import NamedTypes, given_options
from fope_lab.data.problems import DataError
from fope_lab.data.rows import IGNORED, Rows, RowSource
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.data.tokenizers.tokenizer import Tokenizer, built_in, is_built_in

LONGEST_PROMPT = 10_000
"""No prompt is longer than this, in tokens of the byte tokenizer: longer lengths need no check."""


TASK_TYPES: NamedTypes[Task] = NamedTypes("fope_lab.data.tasks")
"""Every task to train on: a class in a file of this package."""


class Task(ABC):
    """A synthetic task: a frozen dataclass whose fields are its options in a sweep file."""

    task: ClassVar[str]
    """The name of the task in a sweep file."""
    version: ClassVar[int] = 1
    """Part of a stage's key. Raise it when the same options give other numbers than before."""
    key_name: ClassVar[str]
    """What a stage's key calls it, beside a version other than 1."""
    has_held_out: ClassVar[bool] = False
    """Whether the task keeps some of its rows out of training."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "task" in cls.__dict__:
            cls.key_name = f"task {cls.task}"
            TASK_TYPES.register(cls.task, cls)

    def canonical(self) -> dict[str, Any]:
        """The shortest description of the task; parsing it gives an equal task."""
        return {"task": self.task, **given_options(self)}

    @abstractmethod
    def check(self, tokenizer: Tokenizer, length: int) -> None:
        """Raise DataError if the tokenizer can't write the task's rows, or `length` tokens are too
        few for them."""

    def tokenizer_problem(self, tokenizer: TokenizerRecipe) -> str | None:
        """Why this tokenizer can't write the task's rows; None if it can, or if only a run can
        tell."""
        return None

    def label_ends(self) -> Sequence[int] | None:
        """The tokens that the model reads of a row up to the one that predicts the last label, for
        rows that are equally likely; None if that is not known beforehand."""
        return None

    @abstractmethod
    def rows(self, tokenizer: Tokenizer, length: int, seed: int) -> RowSource:
        """Rows of `length` + 1 tokens to train on. Raises DataError as `check` does."""

    def held_out_rows(self, tokenizer: Tokenizer, length: int) -> RowSource:
        """Rows of `length` + 1 tokens that are never trained on, the same for every seed. Raises
        DataError as `check` does, and if the task has none."""
        raise DataError(f"the task {self.task} has no held-out rows")


class PromptRows:
    """Rows of prompts, each a document; the loss is on the answers.

    `training_rows(length, seed, first, count, questions)` gives ids (count, length) and a mask of
    the answers. Raises DataError if `length` + 1 tokens are too few for a prompt.
    """

    epoch: int | None = None
    numbered = False

    def __init__(
        self, training_rows: Callable[..., Any], length: int, seed: int, questions: int | None
    ) -> None:
        self._training_rows = training_rows
        self._length, self._seed, self._questions = length, seed, questions
        self.rows(0, 1)  # a length that is too short is an error now, not at some later step

    def rows(self, first: int, count: int) -> Rows:
        ids, answers = self._training_rows(
            self._length + 1, self._seed, first, count, self._questions
        )
        return Rows(ids, np.where(answers, ids, IGNORED), None)


@functools.lru_cache
def task_problem(task: Task, length: int, tokenizer: TokenizerRecipe) -> str | None:
    """Why the task's prompts don't fit into `length` tokens. None if they fit, or if only a run can
    tell: for a tokenizer that must be loaded."""
    if not isinstance(tokenizer, str) or not is_built_in(tokenizer) or length > LONGEST_PROMPT:
        return None
    try:
        task.check(built_in(tokenizer), length)
    except DataError as error:
        return str(error)
    return None
