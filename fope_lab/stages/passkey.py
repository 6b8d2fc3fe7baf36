"""Passkey retrieval by context length."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from fope_lab.config.problems import FieldPath
from fope_lab.data.tasks.passkey_task import PasskeyTask
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.stages.evaluation import EvaluationConfig, ForwardPass, task_misfit
from fope_lab.stages.measure import Measure, accuracy_by_length
from fope_lab.stages.section import Lengths, PositiveInt


class Passkey(EvaluationConfig):
    """Whether the model repeats a key hidden in filler, at each context length."""

    version = 4  # each sequence draws its own positions, where they are drawn
    entry_point = "fope_lab.evaluation.passkey:run"

    kind: Literal["passkey"]
    lengths: Lengths
    trials: PositiveInt = 1000
    form: Literal["english", "symbolic"] = "english"

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The longest prompt."""
        return ("lengths",), max(self.lengths)

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """A prompt for each trial."""
        return [ForwardPass(length, self.trials) for length in self.lengths]

    def measures(self) -> Iterable[Measure]:
        """The accuracy at each length."""
        return [accuracy_by_length("passkey", "passkey_accuracy_by_length", self.lengths)]

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[tuple[FieldPath, str]]:
        """The shortest prompt, if it is too short."""
        if misfit := task_misfit(PasskeyTask(form=self.form), min(self.lengths), tokenizer):
            yield ("lengths",), misfit
