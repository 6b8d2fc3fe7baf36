"""PosGen to train on: a set of sequences, in another order each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.data.rows import IGNORED, EpochOrder, Rows
from fope_lab.data.tasks.base import Task
from fope_lab.data.tasks.posgen import FAR, MODULUS, NEAR, SUBTASKS, Ids, SequenceSet, Subtask
from fope_lab.data.tokenizers.tokenizer import Tokenizer

HELD_OUT = 1000
"""Sequences to validate on (Resonance RoPE, C.1)."""


@dataclass(frozen=True, kw_only=True)
class PosGenTask(Task):
    """Sequences of a subtask of PosGen: `examples` of them, the same for every seed.

    Their tokens are the ids 0 … `modulus` − 1, whatever these stand for in the tokenizer; the model
    has the tokenizer's vocabulary (272 ids of `byte`), and has to learn that no others ever come.
    As in the paper a sequence is `length` tokens, and all but the first j + k are learnt; the token
    after the sequence, which a row has too, is not.
    """

    task: ClassVar[str] = "posgen"
    has_held_out: ClassVar[bool] = True

    subtask: Annotated[Subtask, Doc(SUBTASKS)]
    examples: Annotated[int, Interval(ge=1), Doc("The number of training sequences.")] = 10_000
    modulus: Annotated[int, Interval(ge=2), Doc("The number of different tokens.")] = MODULUS
    j: Annotated[
        int, Interval(ge=1), Doc("The distance of the far tokens that a token depends on.")
    ] = FAR
    k: Annotated[int, Interval(ge=1), Doc("The number of near tokens that a token depends on.")] = (
        NEAR
    )
    official_leaky: Annotated[
        bool,
        Doc(
            "Whether sequences begin as in the released code, in which held-out sequences begin"
            " like training sequences."
        ),
    ] = False

    def __post_init__(self) -> None:
        if lacking := self.sequence_set.lacking("train", self.examples):
            raise DataError(Problem(("examples",), lacking))

    @cached_property
    def sequence_set(self) -> SequenceSet:
        """The set that the examples belong to."""
        return SequenceSet.of(self)

    def check(self, tokenizer: Tokenizer, length: int) -> None:
        if self.modulus > tokenizer.vocabulary_size:
            message = (
                f"found {self.modulus}, needs at most the {tokenizer.vocabulary_size} tokens of "
                f"the tokenizer {tokenizer.identity()['tokenizer']}"
            )
            raise DataError(Problem(("modulus",), message))
        least = self.sequence_set.given + 2
        if length < least:
            raise DataError(
                f"posgen needs at least j + k + 2 = {least} tokens, so that one is learnt, and "
                f"length is {length}"
            )

    def rows(self, tokenizer: Tokenizer, length: int, seed: int) -> PosGenRows:
        self.check(tokenizer, length + 1)
        begun = self.sequence_set.beginnings("train", self.examples)
        return PosGenRows(self.sequence_set, begun, length, ("posgen", seed))

    def held_out_rows(self, tokenizer: Tokenizer, length: int) -> PosGenRows:
        """See Task: as many of the split `validation` as the paper reads, or as there are."""
        self.check(tokenizer, length + 1)
        count = self.sequence_set.at_most("validation", HELD_OUT)
        begun = self.sequence_set.beginnings("validation", count)
        return PosGenRows(self.sequence_set, begun, length, ("posgen held out",))


class PosGenRows:
    """Rows of PosGen; the loss is on all but the given tokens and the one after the sequence."""

    numbered = False

    def __init__(
        self, of: SequenceSet, begun: Ids, length: int, order: tuple[str | int, ...]
    ) -> None:
        self._set, self._begun, self._length = of, begun, length
        self._order = EpochOrder(len(begun), order)
        self.epoch: int | None = len(begun)

    def rows(self, first: int, count: int) -> Rows:
        begun = self._begun[self._order.items(first, count)]
        ids = self._set.continued(begun, self._length + 1)
        labels = ids.copy()
        labels[:, : self._set.given] = IGNORED
        labels[:, self._length] = IGNORED
        return Rows(ids, labels, None)
