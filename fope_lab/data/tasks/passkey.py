"""The passkey task: a key is hidden in filler text, and the prompt asks for it at the end.

To train on, and to measure; a needle in a haystack is the same prompt over a grid of depths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import unknown_name
from fope_lab.data.problems import DataError
from fope_lab.data.seeding import Ids, Name, Words, below, random_words
from fope_lab.data.tasks.base import PromptRows, Task
from fope_lab.data.tasks.haystack import Block, filler, held_out_text, hide, single_ids
from fope_lab.data.tokenizers.tokenizer import Tokenizer, as_tokenizer

Form = Annotated[
    Literal["english", "symbolic"],
    Doc("How a prompt is written: in English, or in tokens without a language."),
]
Marked = tuple[Ids, NDArray[np.bool_]]
"""Token ids and a mask of the answers among them."""
WORDS = 13
"""The random words of a symbolic prompt beside one for each question."""


@dataclass(frozen=True)
class Trial:
    """A prompt with its answer: `input_ids` (length,) ends with `answer_ids`; `depth` in [0, 1] is
    the place of the key in the filler."""

    input_ids: Ids
    answer_ids: Ids
    depth: float


def build_trial(tokenizer: Any, length: int, trial: int, *, form: str = "english") -> Trial:
    """Prompt number `trial` of exactly `length` tokens, including the key at its end. `tokenizer`
    is one of fope-lab's or of transformers'. Raises DataError if `length` is too short, or if the
    tokenizer can't write the prompt."""
    return prompt_form(form, tokenizer).trial(length, trial)


def prompt_form(form: str, tokenizer: Any, digits: int = 5, text: Any | None = None) -> PromptForm:
    """Return what builds a form's prompts for a tokenizer. An English prompt hides its key in the
    token ids `text` (n,), or else in YaRN's filler. Raises DataError for an unknown form, for a
    text that the form does not take, and if the tokenizer can't write it."""
    if form not in FORMS:
        raise DataError(unknown_name((), "passkey form", form, FORMS))
    return FORMS[form](as_tokenizer(tokenizer), digits, text)


class PromptForm(ABC):
    """Builds the tokens of prompts from a key, filler and questions."""

    def __init__(self, tokenizer: Tokenizer, digits: int, text: Any | None) -> None:
        self.tokenizer, self.digits = tokenizer, digits

    @abstractmethod
    def trial(self, length: int, trial: int, depth: float | None = None) -> Trial:
        """Prompt number `trial` of exactly `length` tokens. The key is at `depth` in [0, 1], to the
        nearest token, or at a random one if it is None; all else is the same at all depths. Raises
        DataError if the prompt is longer than `length`."""

    @abstractmethod
    def training_rows(
        self, length: int, seed: int, first: int, count: int, queries: int | None
    ) -> Marked:
        """Rows `first` … `first + count − 1` of a seed's training sequences: ids (count, length)
        and a mask (count, length) of the answers. A row depends only on the length, the seed and
        its number."""


class SymbolicForm(PromptForm):
    """A marker and digits in a cyclic filler, for any tokenizer that has these characters.

    The filler's phase is random, so that neither the filler nor the position reveals the key. No
    digit occurs twice in a key, so that each digit determines the next: a small model learns to
    copy such keys in half the steps.
    """

    marker = "#"
    cycle = "abcdefgh"

    def __init__(self, tokenizer: Tokenizer, digits: int, text: Any | None) -> None:
        if text is not None:
            raise DataError("the symbolic form has its own filler and accepts no other haystack")
        super().__init__(tokenizer, digits, text)
        self._digit_ids, self._cycle_ids, [self._marker_id] = (
            single_ids(tokenizer, characters, "the symbolic form")
            for characters in ("0123456789", self.cycle, self.marker)
        )
        self._block = 1 + digits

    def trial(self, length: int, trial: int, depth: float | None = None) -> Trial:
        words = random_words(("passkey trial", length, trial), 0, 1, WORDS + 1)
        rows, _, starts = self._rows(length, words, 1, depth)
        room = length - 2 * self._block
        return Trial(
            rows[0], rows[0, length - self.digits :], float(starts[0, 0] / room) if room else 0.0
        )

    def training_rows(
        self, length: int, seed: int, first: int, count: int, queries: int | None
    ) -> Marked:
        fitting = length // self._block - 1
        most = min(queries or fitting, fitting)
        words = random_words(("passkey training", length, seed), first, count, WORDS + most)
        rows, answers, _ = self._rows(length, words, most)
        return rows, answers

    def _rows(
        self, length: int, words: Words, queries: int, depth: float | None = None
    ) -> tuple[Ids, NDArray[np.bool_], Ids]:
        """Ids and mask (rows, length) of up to `queries` questions, and the blocks' starts."""
        if length < 2 * self._block:
            raise DataError(
                f"a symbolic prompt with {self.digits} digits needs at least "
                f"{2 * self._block} tokens, but length is {length}"
            )
        count = len(words)
        block = self._block
        questions = 1 + below(words[:, :1], queries)  # (rows, 1)
        room = length - block * (questions + 1)
        cuts = below(words[:, WORDS:], room + 1)  # (rows, queries)
        if depth is not None:
            cuts = np.full_like(cuts, nearest(depth, int(room[0, 0])))
        order = np.arange(queries + 1)
        cuts = np.sort(np.where(order[:-1] < questions, cuts, room), axis=1)
        cuts = np.concatenate([cuts, room], axis=1)
        # Surplus questions are written over the last question, which is identical.
        starts = np.minimum(cuts + block * order, length - block)

        phase = below(words[:, 1:2], len(self._cycle_ids))
        rows = self._cycle_ids[(phase + np.arange(length)) % len(self._cycle_ids)]
        keys = self._digit_ids[self._distinct_digits(words[:, 2:WORDS])]  # (rows, digits)
        marked = np.concatenate([np.full((count, 1), self._marker_id), keys], axis=1)
        places = (starts[:, :, None] + np.arange(block)).reshape(count, -1)
        np.put_along_axis(rows, places, np.tile(marked, queries + 1), axis=1)
        answers = np.zeros(rows.shape, np.bool_)
        np.put_along_axis(answers, places, np.tile(np.arange(block) > 0, queries + 1)[None], axis=1)
        np.put_along_axis(answers, places[:, :block], False, axis=1)  # the key's statement
        return rows, answers, starts

    def _distinct_digits(self, words: Words) -> Ids:
        """Keys (rows, digits) from words (rows, 11), uniform among those of different digits."""
        first = 1 + below(words[:, :1], 9)
        order = words[:, 1:].copy()
        np.put_along_axis(order, first, np.iinfo(np.uint64).max, axis=1)  # not drawn again
        rest = np.argsort(order, axis=1)[:, : self.digits - 1]
        return np.concatenate([first, rest], axis=1)


class EnglishForm(PromptForm):
    """YaRN's prompt; the filler is cut at a token, so that the length is exact."""

    task = (
        "There is an important info hidden inside a lot of irrelevant text. Find it and memorize "
        "them. I will quiz you about the important information there.\n"
    )
    sentences = (
        "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
    )
    statement = "\nThe pass key is {key}. Remember it. {key} is the pass key.\n"
    question = "\nWhat is the pass key? The pass key is"

    def __init__(self, tokenizer: Tokenizer, digits: int, text: Any | None) -> None:
        super().__init__(tokenizer, digits, text)
        self._around = filler(tokenizer, self.sentences) if text is None else held_out_text(text)
        self._task_ids = [*tokenizer.prefix_ids, *tokenizer.encode(self.task)]
        self._question_ids = tokenizer.encode(self.question)

    def trial(self, length: int, trial: int, depth: float | None = None) -> Trial:
        words = random_words(("passkey trial", length, trial), 0, 1, 2)
        return self._prompt(length, words[0], (length, trial), depth)

    def training_rows(
        self, length: int, seed: int, first: int, count: int, queries: int | None
    ) -> Marked:
        words = random_words(("passkey training", length, seed), first, count, 2)
        prompts = [self._prompt(length, row, (length, seed), None) for row in words]
        answers = [np.arange(length) >= length - len(prompt.answer_ids) for prompt in prompts]
        return np.stack([prompt.input_ids for prompt in prompts]), np.stack(answers)

    def _prompt(self, length: int, words: Words, name: Name, depth: float | None) -> Trial:
        lowest = 10 ** (self.digits - 1)
        key = lowest + int(below(words[0], 9 * lowest))
        statement = self.tokenizer.encode(self.statement.format(key=key))
        question_with_key = self.tokenizer.encode(f"{self.question} {key}")
        question = self._question_ids
        if question_with_key[: len(question)] != question:
            raise DataError(
                f"tokenizer {self.tokenizer.identity()} merges the question with the key"
            )
        room = length - len(self._task_ids) - len(statement) - len(question_with_key)
        if room < 0:
            raise DataError(
                f"the English prompt with key {key} needs at least {length - room} tokens "
                f"with this tokenizer, but length is {length}; the symbolic form needs "
                f"{2 * self.digits + 2}"
            )
        before = int(below(words[1], room + 1)) if depth is None else nearest(depth, room)
        blocks = [Block(statement), Block(question_with_key)]
        hidden = hide(self._task_ids, blocks, np.array([before, room]), self._around, name)
        answer = np.array(question_with_key[len(question) :], np.int64)
        return Trial(hidden.ids, answer, before / room if room else 0.0)


FORMS: Mapping[str, type[PromptForm]] = {"symbolic": SymbolicForm, "english": EnglishForm}


def nearest(depth: float, room: int) -> int:
    """How many of `room` tokens of filler go before a key at `depth`. Raises DataError for a depth
    outside [0, 1]."""
    if not 0 <= depth <= 1:
        raise DataError(f"found depth {depth:g}, needs a number from 0 to 1")
    return round(depth * room)


@dataclass(frozen=True, kw_only=True)
class PasskeyTask(Task):
    """Passkey sequences to train on: a key in filler, then questions for it.

    `digits` is the key's length. A symbolic row asks for the key between 1 and `queries` times
    (default: as often as fits), uniformly drawn, the last time at its end: the more often, the
    denser the signal. Everything else is as in a trial. Only the answers have a loss.
    """

    task: ClassVar[str] = "passkey"

    form: Form = "symbolic"
    digits: Annotated[int, Interval(ge=1, le=9), Doc("The number of digits of a key.")] = 5
    queries: Annotated[
        PositiveInt | None,
        Doc("The number of keys that a sequence asks for; the default is as many as fit."),
    ] = None

    def __post_init__(self) -> None:
        if self.form == "english" and self.queries is not None:
            raise DataError("queries is for the symbolic form; English prompts ask once")

    def check(self, tokenizer: Tokenizer, length: int) -> None:
        prompt_form(self.form, tokenizer, self.digits).trial(length, 0)

    def rows(self, tokenizer: Tokenizer, length: int, seed: int) -> PromptRows:
        prompts = prompt_form(self.form, tokenizer, self.digits)
        return PromptRows(prompts.training_rows, length, seed, self.queries)


def needle_depths(count: int) -> tuple[float, ...]:
    """`count` equally spaced depths from 0 (right after the instruction) to 1 (right before the
    question). A single depth is 0.5."""
    return tuple(np.linspace(0, 1, count).tolist()) if count > 1 else (0.5,)
