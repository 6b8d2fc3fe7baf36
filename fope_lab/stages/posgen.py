"""PosGen by position."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fope_lab.config.problems import FieldPath
from fope_lab.config.pydantic_errors import SectionError
from fope_lab.data.problems import DataError
from fope_lab.data.tasks.posgen import FAR, MODULUS, NEAR, Subtask
from fope_lab.data.tasks.posgen_splits import SequenceSet
from fope_lab.data.tasks.posgen_task import PosGenTask
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, known_vocabulary
from fope_lab.stages.base import StageConfig
from fope_lab.stages.evaluation import EvaluationConfig, ForwardPass
from fope_lab.stages.measure import Measure
from fope_lab.stages.section import PositiveInt
from fope_lab.stages.training import TrainingConfig


class PosGen(EvaluationConfig):
    """Whether the model goes on with sequences of PosGen, within the trained length and beyond."""

    version = 1
    entry_point = "fope_lab.evaluation.posgen:run"

    kind: Literal["posgen"]
    subtask: Subtask
    length: PositiveInt = 256
    count: Annotated[PositiveInt, Field(description="sequences")] = 1000
    split: Annotated[
        Literal["validation", "test"], Field(description="neither begins as what is trained on")
    ] = "test"
    modulus: Annotated[int, Field(ge=2)] = MODULUS
    j: PositiveInt = FAR
    k: PositiveInt = NEAR
    official_leaky: Annotated[
        bool, Field(description="begin as the released code does, which is as in training")
    ] = False
    trained_length: Annotated[
        PositiveInt | None,
        Field(description="from this token on is beyond; default the length last trained at"),
    ] = None

    @property
    def sequence_set(self) -> SequenceSet:
        """What the sequences are of."""
        return SequenceSet(
            subtask=self.subtask,
            modulus=self.modulus,
            j=self.j,
            k=self.k,
            official_leaky=self.official_leaky,
        )

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """A sequence."""
        return ("length",), self.length

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """All sequences."""
        return [ForwardPass(self.length, self.count)]

    def measures(self) -> Iterable[Measure]:
        """The accuracy beyond the trained length, within it, and at each position."""
        within = "posgen_accuracy"
        positions = tuple(range(self.sequence_set.given, self.length))
        return [
            Measure("posgen", "posgen_ood_accuracy", learnt=within),
            Measure(within, within),
            Measure("posgen_by_position", "posgen_accuracy_by_position", positions, learnt=within),
        ]

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[tuple[FieldPath, str]]:
        """Tokens that the model has not."""
        vocabulary = known_vocabulary(tokenizer)
        if vocabulary is not None and self.modulus > vocabulary:
            message = f"found {self.modulus}, needs at most the {vocabulary} tokens of the model"
            yield ("modulus",), message

    def parent_problems(self, parent: StageConfig) -> Iterable[tuple[FieldPath, str]]:
        """Another PosGen than the model was trained on, and a length that is not beyond."""
        if not isinstance(parent, TrainingConfig):
            return
        tasks = [one.task for one in parent.data.mix if isinstance(one.task, PosGenTask)]
        if tasks and self.sequence_set not in [task.sequence_set for task in tasks]:
            trained = dataclasses.asdict(tasks[0].sequence_set)
            for name, value in dataclasses.asdict(self.sequence_set).items():
                if value != trained[name]:
                    yield (name,), f"found {value}, and the model is trained with {trained[name]}"
        if self.trained_length is None and self.length <= parent.data.length:
            message = f"found {self.length}, needs more than the {parent.data.length} tokens that"
            yield ("length",), f"{message} the model is trained at, or else no token is beyond them"

    @model_validator(mode="after")
    def _there_are_such_sequences(self) -> Self:
        found: list[tuple[FieldPath, str]] = []
        try:
            if lacking := self.sequence_set.lacking(self.split, self.count):
                found.append((("count",), lacking))
        except DataError as error:
            found += [(problem.at, problem.message) for problem in error.problems]
        given, beyond = self.j + self.k, self.trained_length
        if beyond is not None and beyond >= self.length:
            message = f"found {beyond}, needs less than length {self.length}"
            found.append((("trained_length",), f"{message}: no token would be beyond it"))
        if self.length <= given:
            message = f"found {self.length}, needs more than the j + k = {given} given tokens"
            found.append((("length",), message))
        if found:
            raise SectionError(found)
        return self
