"""The algorithmic tasks to train on: strings of random length, of which no two steps see the same.

Huang et al., arXiv 2410.02140: a row is `<bos> input <sep> answer <eos>`, padded on the right, with
the loss on the answer and <eos>. An input has up to `longest` symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.data.rows import IGNORED, Rows
from fope_lab.data.seeding import Ids, Name
from fope_lab.data.tasks.algorithmic import (
    SUBTASK_DOC,
    SUBTASKS,
    AlgorithmicSubtask,
    Strings,
    Subtask,
)
from fope_lab.data.tasks.base import Task
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.data.tokenizers.tokenizer import SYMBOLS, SymbolTokenizer, Tokenizer

HELD_OUT = 2000
"""Strings to validate on, as many as in the paper."""
BLOCK = 1024
"""Strings that are drawn at once: numpy's overhead for each call is then negligible."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmicTask(Task):
    """Strings of an algorithmic task (Huang et al., arXiv 2410.02140), new ones in each step.

    The length of an input is uniform up to `longest`. Held-out strings are drawn in the same way;
    the shortest of them also occur in training, since there are only a few.
    """

    task: ClassVar[str] = "algorithmic"
    has_held_out: ClassVar[bool] = True

    subtask: Annotated[Subtask, Doc(SUBTASK_DOC)]
    longest: Annotated[
        int, Interval(ge=1, le=10_000), Doc("The number of symbols of the longest input.")
    ] = 50

    def __post_init__(self) -> None:
        if problem := range_problem(SUBTASKS[self.subtask], 0, self.longest):
            raise DataError(Problem(("longest",), problem))

    @property
    def definition(self) -> AlgorithmicSubtask:
        return SUBTASKS[self.subtask]

    def tokenizer_problem(self, tokenizer: TokenizerRecipe) -> str | None:
        return symbols_problem(self.definition, tokenizer)

    def check(self, tokenizer: Tokenizer, length: int) -> None:
        _symbols(self.definition, tokenizer)
        needed = self.definition.tokens(self.longest)
        if length < needed:
            raise DataError(
                f"{self.subtask} needs {needed} tokens for inputs of up to longest ="
                f" {self.longest} symbols, and length is {length}"
            )

    def label_ends(self) -> list[int]:
        """A string of each possible length, with the longest answer; its last token is only
        predicted."""
        low, longest = self.definition.least, self.longest
        lengths = self.definition.possible_lengths(np.arange(low, longest + 1), low, longest)
        return [self.definition.tokens(int(length)) - 1 for length in lengths]

    def rows(self, tokenizer: Tokenizer, length: int, seed: int) -> AlgorithmicRows:
        return AlgorithmicRows(self, tokenizer, length + 1, ("train", seed), None)

    def held_out_rows(self, tokenizer: Tokenizer, length: int) -> AlgorithmicRows:
        return AlgorithmicRows(self, tokenizer, length + 1, ("held out",), HELD_OUT)


class AlgorithmicRows:
    """Rows of one string each; with `epoch` the first so many repeat."""

    numbered = False

    def __init__(
        self, task: AlgorithmicTask, tokenizer: Tokenizer, width: int, name: Name, epoch: int | None
    ) -> None:
        task.check(tokenizer, width)
        self.epoch = epoch
        self._task, self._frame, self._width = task, Frame.of(task.definition, tokenizer), width
        self._name = ("algorithmic", task.subtask, *name)
        self._block = lru_cache(maxsize=2)(self._drawn)  # a batch may span two blocks

    def rows(self, first: int, count: int) -> Rows:
        parts = []
        while count > 0:
            place, left = first, count
            if self.epoch is not None:
                place, left = first % self.epoch, min(count, self.epoch - first % self.epoch)
            block, start = divmod(place, BLOCK)
            size = min(left, BLOCK - start)
            parts.append([array[start : start + size] for array in self._block(block)])
            first, count = first + size, count - size
        ids, labels, sizes = map(np.concatenate, zip(*parts, strict=True))
        return Rows(ids, labels, None, sizes)

    def _drawn(self, block: int) -> tuple[Ids, Ids, Ids]:
        task = self._task
        strings = task.definition.draw(self._name, block * BLOCK, BLOCK, 0, task.longest)
        return self._frame.rows(strings, self._width)


class Frame(NamedTuple):
    """The ids of the tokens around input and answer; `sep` is None where none stands between."""

    bos: int
    sep: int | None
    eos: int
    pad: int

    @classmethod
    def of(cls, subtask: AlgorithmicSubtask, tokenizer: Tokenizer) -> Frame:
        """The ids in a tokenizer with the task's symbols. Raises DataError for another."""
        symbols = _symbols(subtask, tokenizer)
        sep = symbols.sep_id if subtask.separated else None
        return cls(symbols.bos_id, sep, symbols.eos_id, symbols.pad_id)

    def rows(self, strings: Strings, width: int) -> tuple[Ids, Ids, Ids]:
        """The strings as rows (count, width), padded on the right: ids, labels, IGNORED but for
        answer and <eos>, and numbers of tokens (count,)."""
        place = np.arange(width)
        length = strings.lengths[:, None]
        answer = length + 1 + (self.sep is not None)
        end = answer + strings.answer_lengths[:, None]
        ids = np.full((len(length), width), self.pad, np.int64)
        ids[:, 0] = self.bos
        _put(ids, strings.inputs, (place >= 1) & (place <= length), place - 1)
        if self.sep is not None:
            np.put_along_axis(ids, length + 1, self.sep, axis=1)
        _put(ids, strings.answers, (place >= answer) & (place < end), place - answer)
        np.put_along_axis(ids, end, self.eos, axis=1)
        learnt = (place >= answer) & (place <= end)
        return ids, np.where(learnt, ids, IGNORED), end[:, 0] + 1


def _put(ids: Ids, symbols: Ids, where: NDArray[np.bool_], which: Ids) -> None:
    """Put symbols (count, n) of the numbers `which` (…, width) into ids, where `where` is true."""
    number = np.broadcast_to(np.clip(which, 0, symbols.shape[1] - 1), ids.shape)
    np.copyto(ids, np.take_along_axis(symbols, number, axis=1), where=where)


def range_problem(subtask: AlgorithmicSubtask, shortest: int, longest: int) -> str | None:
    """Why no input has from `shortest` to `longest` symbols, or why some are impossible."""
    if subtask.most is not None and longest > subtask.most:
        return f"found {longest}, and an input of {subtask.name} has at most {subtask.most} symbols"
    low = max(shortest, subtask.least)
    if low <= longest:
        possible = subtask.possible_lengths(np.array([longest]), low, longest)[0]
        if low <= possible <= longest:
            return None
    between = f"from {shortest} to {longest}" if shortest else f"at most {longest}"
    return f"found {longest}, and no input of {subtask.name} has {between} symbols"


def symbols_problem(subtask: AlgorithmicSubtask, tokenizer: TokenizerRecipe) -> str | None:
    """Why a tokenizer lacks the task's symbols, or None."""
    if isinstance(tokenizer, str) and SYMBOLS.get(tokenizer) == subtask.symbols:
        return None
    found = tokenizer if isinstance(tokenizer, str) else "a trained tokenizer"
    return f"{subtask.name} needs tokenizer: {subtask.tokenizer}, and found {found}"


def _symbols(subtask: AlgorithmicSubtask, tokenizer: Tokenizer) -> SymbolTokenizer:
    name = str(tokenizer.identity()["tokenizer"])
    if problem := symbols_problem(subtask, name):
        raise DataError(problem)
    assert isinstance(tokenizer, SymbolTokenizer)
    return tokenizer
