"""A needle in a haystack: accuracy of repeating a key, by context length and depth.

One forward pass scores a trial (scoring/exact_match.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.config.annotations import Doc
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import FieldPath, Problem
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.tasks.base import task_problem
from fope_lab.data.tasks.passkey import PasskeyTask, needle_depths, needle_form, needle_trials
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.base import (
    ForwardPass,
    LengthsOption,
    ModelEvaluation,
    PromptForm,
    idle_corpus,
)
from fope_lab.evaluation.scoring.batches import Work, one_after_another
from fope_lab.stages.metric import Metric, accuracy_by_length
from fope_lab.stages.result import Measurement
from fope_lab.stages.sections import CorpusSection
from fope_lab.statistics.intervals import error_of_mean

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context

METRIC = "needle_accuracy_by_length"


@dataclass(frozen=True, kw_only=True)
class Needle(ModelEvaluation, kind="needle"):
    """Whether the model repeats a key at each of some depths of each context length."""

    lengths: LengthsOption
    depths: Annotated[PositiveInt, Doc("The number of depths, equally spaced from 0 to 1.")] = 11
    trials: Annotated[PositiveInt, Doc("The number of trials at each length and depth.")] = 20
    form: PromptForm = "english"
    corpus: Annotated[
        CorpusSection | None,
        Doc("The corpus whose held-out text is the haystack; the default is the passkey's filler."),
    ] = None

    def corpora(self) -> Mapping[str, Corpus]:
        """The haystack, if it is real text."""
        return {} if self.corpus is None else {"corpus": self.corpus}

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The length of the longest prompt, in tokens."""
        return ("lengths",), max(self.lengths)

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """One prompt for each trial at each depth."""
        return [ForwardPass(length, self.depths * self.trials) for length in self.lengths]

    def metrics(self) -> Iterable[Metric]:
        """The accuracy at each length, over all depths."""
        return [
            accuracy_by_length(
                name=METRIC, short_name="needle", lengths=self.lengths, corpus=self.corpus
            )
        ]

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[Problem]:
        """The shortest prompt, if it is too short."""
        if problem := task_problem(PasskeyTask(form=self.form), min(self.lengths), tokenizer):
            yield Problem(("lengths",), problem)

    def idle_options(self) -> Mapping[str, str]:
        """The haystack, if the form has a filler of its own."""
        return idle_corpus(self.form)

    def run(self, context: Context) -> dict[str, Any]:
        """Log the accuracy at each length, and draw a heat map over lengths and depths."""
        text = None
        if self.corpus is not None:
            text = context.text("corpus", max(self.lengths), "a haystack")
        trials = self.depths * self.trials
        progress = context.progress(trials * sum(self.lengths))
        results = []
        for length in sorted(self.lengths):
            result = needle_accuracy(
                context.model,
                context.tokenizer,
                length,
                depths=self.depths,
                trials=self.trials,
                form=self.form,
                text=text,
                batch_tokens=self.batch_tokens,
                progress=progress.part(trials, weight=length),
                work=context.work,
            )
            context.log(
                Measurement(
                    name=METRIC, x=length, value=result.accuracy, stderr=result.stderr, n=trials
                )
            )
            results.append(result)
        context.add_heatmap(depth_heatmap(results))
        return {
            "form": self.form,
            "haystack": "held-out text" if self.corpus else "filler",
            "trials": {str(length): trials for length in sorted(self.lengths)},
        }


@dataclass(frozen=True)
class NeedleResult:
    """Which trials of a length were right (depths, trials), and the depths asked for (depths,)."""

    length: int
    depths: tuple[float, ...]
    correct: NDArray[np.bool_]

    @property
    def accuracy(self) -> float:
        """The share of all trials whose every key token was right."""
        return float(self.correct.mean())

    @property
    def stderr(self) -> float | None:
        """The standard error of the accuracy, by trials; None for a single trial.

        The trials of all depths have one key and one text, and so are not independent.
        """
        return error_of_mean(self.correct.mean(axis=0))

    @property
    def by_depth(self) -> list[float]:
        """The accuracy at each depth."""
        accuracies: list[float] = self.correct.mean(axis=1).tolist()
        return accuracies


def needle_accuracy(
    model: Any,
    tokenizer: Tokenizer,
    length: int,
    *,
    depths: int,
    trials: int,
    form: str = "english",
    text: Any | None = None,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
    work: Work = one_after_another,
) -> NeedleResult:
    """Score `trials` prompts of exactly `length` tokens at each of `depths` equally spaced depths.

    `model` is as in exact_match; `text` (n,) are token ids to hide the key in, or None for the
    form's filler. Raises DataError if the prompt does not fit, or the text is too short for it.
    """
    from fope_lab.evaluation.scoring.exact_match import exact_match

    places = needle_depths(depths)
    cells = needle_trials(needle_form(form, tokenizer, text), length, places, trials)
    asked = [trial for cell in cells for trial in cell]
    correct = exact_match(model, asked, batch_tokens=batch_tokens, progress=progress, work=work)
    return NeedleResult(length, places, correct.reshape(depths, trials))


def depth_heatmap(results: Sequence[NeedleResult]) -> dict[str, Any]:
    """What a report draws: accuracy by depth (rows) and length (columns)."""
    return {
        "title": "Needle accuracy by depth and context length",
        "metric": "needle_accuracy",
        "x_label": "context length, tokens",
        "y_label": "depth of the needle, %",
        "x": [result.length for result in results],
        "y": [round(100 * depth, 1) for depth in results[0].depths],
        "values": np.stack([result.by_depth for result in results], axis=1).tolist(),
        "low": 0.0,
        "high": 1.0,
    }
