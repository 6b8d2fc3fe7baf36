"""PosGen: whether a model goes on with a sequence, within the length it was trained at and beyond.

Wang et al., "Resonance RoPE", arXiv 2403.00071, §5: a token is right if it is the argmax, over all
of the model's vocabulary, after the right ones before it; "OOD accuracy" is of all tokens that are
beyond the trained length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fope_lab.config.annotations import Doc
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import FieldPath, Problem, collecting
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import Data
from fope_lab.data.tasks.posgen import PosGenOptions, PosGenTask, SequenceSet
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, known_vocabulary
from fope_lab.evaluation.base import ModelEvaluation
from fope_lab.stages.base import ForwardPass, StageConfig
from fope_lab.stages.metric import POSITION, Measurement, Metric
from fope_lab.stages.training import TrainingConfig
from fope_lab.statistics.intervals import error_of_mean

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context

BEYOND, WITHIN = "posgen_ood_accuracy", "posgen_accuracy"
BY_POSITION = "posgen_accuracy_by_position"


@dataclass(frozen=True, kw_only=True)
class PosGen(PosGenOptions, ModelEvaluation, kind="posgen"):
    """Whether the model continues sequences of PosGen, within the trained length and beyond."""

    length: Annotated[PositiveInt, Doc("The number of tokens in a sequence.")] = 256
    count: Annotated[PositiveInt, Doc("The number of sequences.")] = 1000
    split: Annotated[
        Literal["validation", "test"],
        Doc("The part that sequences are from; no training sequence begins alike."),
    ] = "test"

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        return ("length",), self.length

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        return [ForwardPass(self.length, self.count)]

    def metrics(self) -> Iterable[Metric]:
        accuracy = Metric(name=WITHIN, short_name=WITHIN, better="higher", unit="fraction")
        positions = tuple(range(self.sequence_set.given, self.length))
        beyond = dataclasses.replace(
            accuracy, name=BEYOND, short_name="posgen", label="posgen ood accuracy", mastery=WITHIN
        )
        by_position = dataclasses.replace(
            accuracy,
            name=BY_POSITION,
            short_name="posgen_by_position",
            axis=POSITION,
            xs=positions,
            mastery=WITHIN,
        )
        return [beyond, accuracy, by_position]

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[Problem]:
        vocabulary = known_vocabulary(tokenizer)
        return [] if vocabulary is None else self._vocabulary_problems(vocabulary)

    def parent_problems(self, parent: StageConfig) -> Iterable[Problem]:
        """Another PosGen than the model is trained on, and a length that is not beyond."""
        if not isinstance(parent, TrainingConfig):
            return []
        return self._training_problems(sequence_sets(parent.data), parent.data.length)

    def _vocabulary_problems(self, vocabulary: int) -> Iterable[Problem]:
        if self.modulus > vocabulary:
            message = f"found {self.modulus}, needs at most the {vocabulary} tokens of the model"
            yield Problem(("modulus",), message)

    def _training_problems(
        self, trained_on: list[SequenceSet], trained_length: int
    ) -> Iterable[Problem]:
        if trained_on and self.sequence_set not in trained_on:
            trained = dataclasses.asdict(trained_on[0])
            for name, value in dataclasses.asdict(self.sequence_set).items():
                if value != trained[name]:
                    message = f"found {value}, and the model is trained with {trained[name]}"
                    yield Problem((name,), message)
        if self.length <= trained_length:
            message = (
                f"found {self.length}, needs more than the {trained_length} tokens that the model "
                "is trained at, or else no token is beyond them"
            )
            yield Problem(("length",), message)

    def problems(self) -> Iterable[Problem]:
        """Sequences that do not exist, or that have no token but the given ones."""
        yield from super().problems()
        found: list[Problem] = []
        with collecting(found):
            if lacking := self.sequence_set.lacking(self.split, self.count):
                found.append(Problem(("count",), lacking))
        yield from found
        given = self.j + self.k
        if self.length <= given:
            message = f"found {self.length}, needs more than the j + k = {given} given tokens"
            yield Problem(("length",), message)

    def run(self, context: Context) -> dict[str, Any]:
        """Log the accuracies beyond, within and by position. Raises DataError if the model was
        trained on another PosGen, has too few tokens for this one, or was trained at no less than
        its length."""
        from fope_lab.evaluation.scoring.exact_match import correct_tokens

        config = context.model_config
        data = context.training_data
        trained_on = [] if data is None else sequence_sets(data)
        trained_length = config.context_length
        problems = [
            *self._training_problems(trained_on, trained_length),
            *self._vocabulary_problems(config.model.vocab_size),
        ]
        if problems:
            raise DataError("; ".join(map(str, problems)))
        correct = correct_tokens(
            context.model,
            self.sequence_set.sequences(self.split, self.count, self.length),
            given=self.sequence_set.given,
            **context.scoring(self.count).part(self.count),
        )
        given = self.sequence_set.given
        common: dict[str, Any] = {"n": self.count, "chance": 1 / self.modulus}
        for position, accuracy in enumerate(correct.mean(0).tolist(), start=given):
            context.log(Measurement(name=BY_POSITION, x=position, value=accuracy, **common))
        # The tokens of one sequence are not independent, so the error is over sequences.
        border = max(0, trained_length - given)
        measured = [
            Measurement(
                name=name,
                value=float(part.mean(1).mean()),
                stderr=error_of_mean(part.mean(1)),
                **common,
            )
            for name, part in ((BEYOND, correct[:, border:]), (WITHIN, correct[:, :border]))
            if part.size
        ]
        context.log(*measured, step=self.length)  # where MLflow draws numbers without an x
        return {
            **dataclasses.asdict(self.sequence_set),
            "split": self.split,
            "count": self.count,
            "length": self.length,
            "trained_length": trained_length,
            "chance": 1 / self.modulus,
            "trained_on_posgen": bool(trained_on),
        }


def sequence_sets(data: Data) -> list[SequenceSet]:
    return [source.task.sequence_set for source in data.mix if isinstance(source.task, PosGenTask)]
