"""RULER's key-value and variable-tracking tasks: exactly the values, or variables, asked for.

RULER counts how many of them a generated text holds; here the answer has one spelling, which one
forward pass scores whole (scoring/exact_match.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import MinLen
from numpy.typing import NDArray

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import EachOnce
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import FieldPath, Problem, collecting
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.tasks.base import task_problem
from fope_lab.data.tasks.ruler_tasks import KeyValueTask, RulerTask, VariableTrackingTask
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
from fope_lab.statistics.intervals import wilson_interval

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context

TaskName = Literal["key-value", "variable-tracking"]
METRICS: Mapping[TaskName, str] = {
    "key-value": "ruler_key_value_accuracy_by_length",
    "variable-tracking": "ruler_variable_tracking_accuracy_by_length",
}
OPTIONS: Mapping[TaskName, tuple[str, ...]] = {
    "key-value": ("keys", "queries", "digits"),
    "variable-tracking": ("chains", "hops"),
}
"""The fields that concern one task alone."""


@dataclass(frozen=True, kw_only=True)
class Ruler(ModelEvaluation, kind="ruler"):
    """Whether the model gives exactly the values, or variables, that a prompt asks for."""

    lengths: LengthsOption
    tasks: Annotated[
        tuple[TaskName, ...], MinLen(1), EachOnce(), Doc("The tasks to run; the default is both.")
    ] = ("key-value", "variable-tracking")
    trials: Annotated[PositiveInt, Doc("The number of trials of each task at each length.")] = 500
    form: PromptForm = "english"
    keys: Annotated[PositiveInt, Doc("The number of keys that a key-value prompt hides.")] = 4
    queries: Annotated[PositiveInt, Doc("The number of these keys that are asked for at once.")] = 1
    digits: Annotated[int, Interval(ge=1, le=9), Doc("The number of digits of a key's value.")] = 7
    chains: Annotated[PositiveInt, Doc("The number of chains of variables; RULER has one.")] = 1
    hops: Annotated[PositiveInt, Doc("The number of hops between variables in a chain.")] = 4
    corpus: Annotated[
        CorpusSection | None,
        Doc("The corpus whose held-out text is the haystack; the default is the passkey's filler."),
    ] = None

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """The names of the two RULER tasks."""
        return tuple(OPTIONS)

    def described(self) -> dict[TaskName, RulerTask]:
        """The tasks with their options, by name."""
        make: Mapping[TaskName, Callable[[], RulerTask]] = {
            "key-value": lambda: KeyValueTask(
                form=self.form, keys=self.keys, queries=self.queries, digits=self.digits
            ),
            "variable-tracking": lambda: VariableTrackingTask(
                form=self.form, chains=self.chains, hops=self.hops
            ),
        }
        return {name: make[name]() for name in self.tasks}

    def corpora(self) -> Mapping[str, Corpus]:
        """The haystack, if it is real text."""
        return {} if self.corpus is None else {"corpus": self.corpus}

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The length of the longest prompt, in tokens."""
        return ("lengths",), max(self.lengths)

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """One prompt for each trial of each task."""
        return [ForwardPass(length, self.trials * len(self.tasks)) for length in self.lengths]

    def metrics(self) -> Iterable[Metric]:
        """The accuracy of each task at each length."""
        for task in self.tasks:
            yield accuracy_by_length(
                name=METRICS[task], short_name=task, lengths=self.lengths, corpus=self.corpus
            )

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[Problem]:
        """The shortest prompt of each task that is too short."""
        for task in self.described().values():
            if problem := task_problem(task, min(self.lengths), tokenizer):
                yield Problem(("lengths",), problem)

    def problems(self) -> Iterable[Problem]:
        """Tasks that can't have these options."""
        yield from super().problems()
        found: list[Problem] = []
        with collecting(found):
            self.described()
        yield from found

    def idle_options(self) -> Mapping[str, str]:
        """The options of a task that is not run, and the haystack of a form with its own filler."""
        idle = {
            option: f"{task} is not among the tasks"
            for task, options in OPTIONS.items()
            for option in options
            if task not in self.tasks
        }
        return {**idle, **idle_corpus(self.form)}

    def run(self, context: Context) -> dict[str, Any]:
        """Log the accuracy of each task at each length."""
        text = None
        if self.corpus is not None:
            text = context.text("corpus", max(self.lengths), "a haystack")
        tasks = self.described()
        for task in tasks.values():
            task.check(context.tokenizer, min(self.lengths))  # before any of the work
        progress = context.progress(self.trials * len(tasks) * sum(self.lengths))
        for length in self.lengths:
            measured = []
            for name, task in tasks.items():
                result = ruler_accuracy(
                    context.model,
                    context.tokenizer,
                    task,
                    length,
                    trials=self.trials,
                    text=text,
                    batch_tokens=self.batch_tokens,
                    progress=progress.part(self.trials, weight=length),
                    work=context.work,
                )
                measured.append(
                    Measurement(
                        name=METRICS[name],
                        x=length,
                        value=result.accuracy,
                        ci95=result.interval,
                        n=self.trials,
                        chance=result.chance,
                    )
                )
            context.log(*measured)
        return {
            "form": self.form,
            "haystack": "held-out text" if self.corpus else "filler",
            "trials": {str(length): self.trials for length in self.lengths},
        }


@dataclass(frozen=True)
class RulerResult:
    """Which trials of a task and length were right, and the accuracy of guessing."""

    length: int
    correct: NDArray[np.bool_]
    chance: float

    @property
    def accuracy(self) -> float:
        """The share of trials whose whole answer was right."""
        return float(self.correct.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy."""
        return wilson_interval(int(self.correct.sum()), len(self.correct))


def ruler_accuracy(
    model: Any,
    tokenizer: Tokenizer,
    task: RulerTask,
    length: int,
    *,
    trials: int,
    text: Any | None = None,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
    work: Work = one_after_another,
) -> RulerResult:
    """Score trials 0 … `trials` − 1 of a task, each of exactly `length` tokens.

    `model` is as in exact_match; `text` (n,) are token ids to hide the statements in, or None for
    the form's filler. Raises DataError if a prompt does not fit, or the text is too short for it.
    """
    from fope_lab.evaluation.scoring.exact_match import exact_match

    prompts = task.prompts(tokenizer, text)
    asked = [prompts.trial(length, i) for i in range(trials)]
    correct = exact_match(model, asked, batch_tokens=batch_tokens, progress=progress, work=work)
    return RulerResult(length, correct, prompts.chance)
