"""The passkey task: a key hidden in filler, asked for at the end.

Two forms. `english` is YaRN's prompt (Peng et al. 2023, after Mohtashami & Jaggi 2023). `symbolic`
is for models too small for English: a marker and the key's digits in a cyclic filler of letters,
and at the end the marker again, after which the key is due:

    …cdefghabcde#73910fghabcd…efgha#73910

Trials (`build_trial`) are seeded by length and number alone, so they are the same for every model;
training rows (passkey_task.py) come from other streams of random numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fope_lab.config.problems import unknown_name
from fope_lab.data.problems import DataError
from fope_lab.data.seeding import below, random_words
from fope_lab.data.tasks.haystack import Block, Filler, Haystack, Ids, Name, hide, single_ids
from fope_lab.data.tokenizers.tokenizer import Tokenizer, as_tokenizer


@dataclass(frozen=True)
class Trial:
    """One prompt with its answer: `input_ids` (length,) ends with `answer_ids`; `depth` in [0, 1]
    is where in the filler the key lies."""

    input_ids: Ids
    answer_ids: Ids
    depth: float


def build_trial(
    tokenizer: Any, length: int, trial: int, *, form: str = "english", digits: int = 5
) -> Trial:
    """Prompt number `trial` of exactly `length` tokens, key at the end included.

    `tokenizer` is one of ours or of transformers. Raises DataError if `length` is too short, or if
    the tokenizer can't write the prompt.
    """
    return prompt_form(form, tokenizer, digits).trial(length, trial)


def prompt_form(
    form: str, tokenizer: Any, digits: int = 5, haystack: Haystack | None = None
) -> PromptForm:
    """What builds the prompts of a form for a tokenizer; quicker than build_trial for many.

    The key of an English prompt is hidden in `haystack`, if it is given, and not in YaRN's filler.
    """
    if form not in PromptForm.forms:
        raise DataError(unknown_name((), "passkey form", form, PromptForm.forms))
    return PromptForm.forms[form](as_tokenizer(tokenizer), digits, haystack)


class PromptForm(ABC):
    """How a key, filler and questions become tokens."""

    forms: ClassVar[dict[str, type[PromptForm]]] = {}

    def __init__(self, tokenizer: Tokenizer, digits: int, haystack: Haystack | None) -> None:
        self.tokenizer = tokenizer
        self.digits = digits
        self.haystack = haystack

    def __init_subclass__(cls, *, form: str) -> None:
        super().__init_subclass__()
        PromptForm.forms[form] = cls

    @abstractmethod
    def trial(self, length: int, trial: int, depth: float | None = None) -> Trial:
        """Prompt number `trial` of exactly `length` tokens. Raises DataError if it can't fit.

        The key lies at `depth` in [0, 1], as near as tokens allow, or at a drawn one; everything
        else is the same at all depths.
        """

    @abstractmethod
    def training_rows(
        self, length: int, seed: int, first: int, count: int, queries: int | None
    ) -> tuple[Ids, NDArray[np.bool_]]:
        """Rows `first` … `first + count − 1` of a seed's training sequences: their ids
        (count, length) and which of them are answers. A row depends on nothing else."""

    def _keys(self, words: NDArray[np.uint64]) -> Ids:
        """Keys from words of any shape: numbers of `digits` digits, the first of them not 0."""
        low = 10 ** (self.digits - 1)
        return low + below(words, 9 * low)


class SymbolicForm(PromptForm, form="symbolic"):
    """A marker and digits in a cyclic filler: works on any tokenizer that has the characters.

    The filler's phase is drawn, so that neither it nor the position tells anything of the key. No
    digit stands twice in a key, so that each digit says which one follows: a small model learns to
    copy such keys in half the steps.
    """

    marker = "#"
    cycle = "abcdefgh"

    def __init__(self, tokenizer: Tokenizer, digits: int, haystack: Haystack | None) -> None:
        if haystack is not None:
            raise DataError("the symbolic passkey has a filler of its own, and no other haystack")
        super().__init__(tokenizer, digits, haystack)
        self._digit_ids = self._single_ids("0123456789")
        self._cycle_ids = self._single_ids(self.cycle)
        self._marker_id = self._single_ids(self.marker)[0]

    def trial(self, length: int, trial: int, depth: float | None = None) -> Trial:
        words = random_words(("passkey trial", length, trial), 0, 1, self._words(1))
        rows, _, starts = self._rows(length, words, 1, depth)
        room = length - 2 * self._block
        found = float(starts[0, 0] / room) if room else 0.0
        return Trial(rows[0], rows[0, length - self.digits :], found)

    def training_rows(
        self, length: int, seed: int, first: int, count: int, queries: int | None
    ) -> tuple[Ids, NDArray[np.bool_]]:
        fitting = length // self._block - 1
        most = min(queries or fitting, fitting)
        words = random_words(("passkey training", length, seed), first, count, self._words(most))
        rows, answers, _ = self._rows(length, words, most)
        return rows, answers

    def _rows(
        self, length: int, words: NDArray[np.uint64], queries: int, depth: float | None = None
    ) -> tuple[Ids, NDArray[np.bool_], Ids]:
        """Rows of up to `queries` questions: ids, which are answers, and where blocks start.

        The free tokens are cut at sorted uniform places, or all at `depth`, so that gaps of all
        lengths occur; the last question always ends the row.
        """
        if length < 2 * self._block:
            raise DataError(
                f"a symbolic passkey prompt with {self.digits} digits needs at least "
                f"{2 * self._block} tokens, and length is {length}"
            )
        count = len(words)
        block = self._block
        asked = 1 + below(words[:, :1], queries)  # (rows, 1)
        room = length - block * (asked + 1)
        cuts = below(words[:, 13:], room + 1)  # (rows, queries)
        if depth is not None:
            cuts = np.full_like(cuts, nearest(depth, int(room[0, 0])))
        order = np.arange(queries + 1)
        cuts = np.sort(np.where(order[:-1] < asked, cuts, room), axis=1)
        cuts = np.concatenate([cuts, room], axis=1)
        # Questions that a row does not ask are put on its last one, which they equal.
        starts = np.minimum(cuts + block * order, length - block)

        phase = below(words[:, 1:2], len(self._cycle_ids))
        rows = self._cycle_ids[(phase + np.arange(length)) % len(self._cycle_ids)]
        keys = self._digit_ids[self._distinct_digits(words[:, 2:13])]  # (rows, digits)
        marked = np.concatenate([np.full((count, 1), self._marker_id), keys], axis=1)
        places = (starts[:, :, None] + np.arange(block)).reshape(count, -1)
        np.put_along_axis(rows, places, np.tile(marked, queries + 1), axis=1)
        answers = np.zeros(rows.shape, np.bool_)
        np.put_along_axis(answers, places, np.tile(np.arange(block) > 0, queries + 1)[None], axis=1)
        np.put_along_axis(answers, places[:, :block], False, axis=1)  # the key's statement
        return rows, answers, starts

    @property
    def _block(self) -> int:
        return 1 + self.digits

    def _words(self, queries: int) -> int:
        return 13 + queries

    def _distinct_digits(self, words: NDArray[np.uint64]) -> Ids:
        """Keys (rows, digits) from words (rows, 11), uniform among the numbers of that many
        digits in which none stands twice."""
        first = 1 + below(words[:, :1], 9)
        order = words[:, 1:].copy()
        np.put_along_axis(order, first, np.iinfo(np.uint64).max, axis=1)  # not drawn again
        rest = np.argsort(order, axis=1)[:, : self.digits - 1]
        return np.concatenate([first, rest], axis=1)

    def _single_ids(self, characters: str) -> Ids:
        return single_ids(self.tokenizer, characters, "the symbolic passkey")


class EnglishForm(PromptForm, form="english"):
    """YaRN's prompt. The filler is cut to tokens, so that the length is exact."""

    task = (
        "There is an important info hidden inside a lot of irrelevant text. Find it and memorize "
        "them. I will quiz you about the important information there.\n"
    )
    sentences = (
        "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
    )
    statement = "\nThe pass key is {key}. Remember it. {key} is the pass key.\n"
    question = "\nWhat is the pass key? The pass key is"

    def __init__(self, tokenizer: Tokenizer, digits: int, haystack: Haystack | None) -> None:
        super().__init__(tokenizer, digits, haystack)
        self._around = haystack or Filler(tokenizer, self.sentences)
        self._task_ids = [*tokenizer.prefix_ids, *tokenizer.encode(self.task)]
        self._question_ids = tokenizer.encode(self.question)

    def trial(self, length: int, trial: int, depth: float | None = None) -> Trial:
        words = random_words(("passkey trial", length, trial), 0, 1, 2)
        return self._prompt(length, words[0], (length, trial), depth)

    def training_rows(
        self, length: int, seed: int, first: int, count: int, queries: int | None
    ) -> tuple[Ids, NDArray[np.bool_]]:
        words = random_words(("passkey training", length, seed), first, count, 2)
        prompts = [self._prompt(length, row, (length, seed), None) for row in words]
        answers = [np.arange(length) >= length - len(prompt.answer_ids) for prompt in prompts]
        return np.stack([prompt.input_ids for prompt in prompts]), np.stack(answers)

    def _prompt(
        self, length: int, words: NDArray[np.uint64], name: Name, depth: float | None
    ) -> Trial:
        key = int(self._keys(words[0]))
        statement = self.tokenizer.encode(self.statement.format(key=key))
        asked = self.tokenizer.encode(f"{self.question} {key}")
        question = self._question_ids
        if asked[: len(question)] != question:
            raise DataError(
                f"tokenizer {self.tokenizer.identity()} merges the passkey's question with the key"
            )
        room = length - len(self._task_ids) - len(statement) - len(asked)
        if room < 0:
            raise DataError(
                f"passkey prompt {key} in English needs at least {length - room} tokens with this "
                f"tokenizer, and length is {length}; the symbolic form needs {2 * self.digits + 2}"
            )
        before = int(below(words[1], room + 1)) if depth is None else nearest(depth, room)
        blocks = [Block(statement), Block(asked)]
        hidden = hide(self._task_ids, blocks, np.array([before, room]), self._around, name)
        answer = np.array(asked[len(question) :], np.int64)
        return Trial(hidden.ids, answer, before / room if room else 0.0)


def nearest(depth: float, room: int) -> int:
    """How many of `room` tokens lie before a key at `depth` in [0, 1]."""
    if not 0 <= depth <= 1:
        raise DataError(f"found depth {depth:g}, needs a number from 0 to 1")
    return round(depth * room)
