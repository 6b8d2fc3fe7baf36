"""Passkey retrieval: whether a model repeats a key that is hidden in filler.

One forward pass scores a trial (scoring/exact_match.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.config.annotations import Doc
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import FieldPath, Problem
from fope_lab.data.tasks.base import task_problem
from fope_lab.data.tasks.passkey import PasskeyTask, prompt_form
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.base import ForwardPass, LengthsOption, ModelEvaluation, PromptForm
from fope_lab.evaluation.scoring.batches import Work, one_after_another
from fope_lab.stages.metric import Metric, accuracy_by_length
from fope_lab.stages.result import Measurement
from fope_lab.statistics.intervals import wilson_interval

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context

METRIC = "passkey_accuracy_by_length"
DEPTHS = 10


@dataclass(frozen=True, kw_only=True)
class Passkey(ModelEvaluation, kind="passkey"):
    """Whether the model repeats a key hidden in filler, at each context length."""

    version = 4  # each sequence draws its own positions, where they are drawn

    lengths: LengthsOption
    trials: Annotated[PositiveInt, Doc("The number of trials at each length.")] = 1000
    form: PromptForm = "english"

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The length of the longest prompt, in tokens."""
        return ("lengths",), max(self.lengths)

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """One prompt for each trial."""
        return [ForwardPass(length, self.trials) for length in self.lengths]

    def metrics(self) -> Iterable[Metric]:
        """The accuracy at each length."""
        return [accuracy_by_length(name=METRIC, short_name="passkey", lengths=self.lengths)]

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[Problem]:
        """The shortest prompt, if it is too short."""
        if problem := task_problem(PasskeyTask(form=self.form), min(self.lengths), tokenizer):
            yield Problem(("lengths",), problem)

    def run(self, context: Context) -> dict[str, Any]:
        """Log the accuracy at each length, and keep the accuracy by depth."""
        progress = context.progress(self.trials * sum(self.lengths))
        by_depth = {}
        for length in self.lengths:
            result = passkey_accuracy(
                context.model,
                context.tokenizer,
                length,
                trials=self.trials,
                form=self.form,
                batch_tokens=self.batch_tokens,
                progress=progress.part(self.trials, weight=length),
                work=context.work,
            )
            context.log(
                Measurement(
                    name=METRIC,
                    x=length,
                    value=result.accuracy,
                    ci95=result.interval,
                    n=self.trials,
                )
            )
            by_depth[str(length)] = result.by_depth
        context.keep(by_depth=by_depth)
        return {"form": self.form, "trials": {str(length): self.trials for length in self.lengths}}


@dataclass(frozen=True)
class PasskeyResult:
    """Which trials of a length were right, and the depth in [0, 1] of the key in each of them."""

    length: int
    correct: NDArray[np.bool_]
    depths: NDArray[np.float64]

    @property
    def accuracy(self) -> float:
        """The share of trials whose every key token was right."""
        return float(self.correct.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy."""
        return wilson_interval(int(self.correct.sum()), len(self.correct))

    @property
    def by_depth(self) -> list[dict[str, float]]:
        """Accuracy and number of trials in each tenth of the depths that holds a trial."""
        tenth = np.minimum((self.depths * DEPTHS).astype(int), DEPTHS - 1)
        return [
            {
                "depth": (index + 0.5) / DEPTHS,
                "accuracy": float(self.correct[tenth == index].mean()),
                "trials": int((tenth == index).sum()),
            }
            for index in range(DEPTHS)
            if (tenth == index).any()
        ]


def passkey_accuracy(
    model: Any,
    tokenizer: Tokenizer,
    length: int,
    *,
    trials: int,
    form: str = "english",
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
    work: Work = one_after_another,
) -> PasskeyResult:
    """Score trials 0 … `trials` − 1 of exactly `length` tokens, about `batch_tokens` at a time.

    `model` is as in exact_match. Raises DataError if the prompt does not fit; what the model itself
    raises is an error too, never a wrong answer.
    """
    from fope_lab.evaluation.scoring.exact_match import exact_match

    prompts = prompt_form(form, tokenizer)
    asked = [prompts.trial(length, i) for i in range(trials)]
    correct = exact_match(model, asked, batch_tokens=batch_tokens, progress=progress, work=work)
    return PasskeyResult(length, correct, np.array([trial.depth for trial in asked]))
