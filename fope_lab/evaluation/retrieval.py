"""Retrieval from long prompts: passkey, needle in a haystack, and two of RULER's tasks.

A prompt of exactly so many tokens hides something, asks for it at its end, and is right if the
model gives every token of the one right answer. One forward pass scores a prompt
(scoring/exact_match.py). RULER counts how many of the values a generated text holds; here the
answer, which has one spelling, is scored whole.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import MinLen
from numpy.typing import NDArray

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import EachOnce
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import FieldPath, Problem, collecting
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.tasks.base import Task, task_problem
from fope_lab.data.tasks.passkey import (
    PasskeyTask,
    needle_depths,
    needle_form,
    needle_trials,
    prompt_form,
)
from fope_lab.data.tasks.ruler_tasks import KeyValueTask, RulerTask, VariableTrackingTask
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.base import ForwardPass, LengthsOption, ModelEvaluation
from fope_lab.stages.metric import Metric, accuracy_by_length
from fope_lab.stages.result import Measurement
from fope_lab.stages.sections import CorpusSection
from fope_lab.statistics.intervals import error_of_mean, wilson_interval

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context, Progress

PASSKEY, NEEDLE = "passkey_accuracy_by_length", "needle_accuracy_by_length"
DEPTHS = 10
"""The parts of the depths of which a passkey result has an accuracy each."""
RulerName = Literal["key-value", "variable-tracking"]
RULER: Mapping[RulerName, str] = {
    "key-value": "ruler_key_value_accuracy_by_length",
    "variable-tracking": "ruler_variable_tracking_accuracy_by_length",
}
RULER_OPTIONS: Mapping[RulerName, tuple[str, ...]] = {
    "key-value": ("keys", "queries", "digits"),
    "variable-tracking": ("chains", "hops"),
}
"""The fields that concern one task alone."""


@dataclass(frozen=True)
class Answered:
    """Which prompts of a length were answered right, and the accuracy of guessing if known."""

    length: int
    correct: NDArray[np.bool_]
    chance: float | None = None

    @property
    def accuracy(self) -> float:
        """The share of prompts whose whole answer was right."""
        return float(self.correct.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy."""
        return wilson_interval(int(self.correct.sum()), self.correct.size)

    def measured(self, name: str) -> Measurement:
        """The accuracy as a metric."""
        return Measurement(
            name=name,
            x=self.length,
            value=self.accuracy,
            ci95=self.interval,
            n=self.correct.size,
            chance=self.chance,
        )


@dataclass(frozen=True, kw_only=True)
class Retrieval(ModelEvaluation):
    """Prompts of exactly each of some lengths, each with one right answer."""

    lengths: LengthsOption
    form: Annotated[
        Literal["english", "symbolic"],
        Doc("How a prompt is written: in English, or in tokens without a language."),
    ] = "english"

    @property
    @abstractmethod
    def prompts(self) -> int:
        """How many prompts there are at each length."""

    @property
    def in_order(self) -> Sequence[int]:
        """The lengths in the order in which they are measured."""
        return self.lengths

    @abstractmethod
    def described(self) -> Mapping[str, Task]:
        """What is asked, by name: each needs prompts of some length."""

    @abstractmethod
    def answered(
        self, context: Context, length: int, text: Any | None, progress: Progress
    ) -> Mapping[str, Answered]:
        """The results at a length by metric; `text` (n,) are tokens to hide something in."""

    @abstractmethod
    def conclude(self, context: Context, results: Sequence[Mapping[str, Answered]]) -> None:
        """Keep what belongs to all lengths together."""

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The length of the longest prompt, in tokens."""
        return ("lengths",), max(self.lengths)

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """One for each prompt."""
        return [ForwardPass(length, self.prompts) for length in self.lengths]

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[Problem]:
        """The shortest prompt of each kind that is too short."""
        for task in self.described().values():
            if problem := task_problem(task, min(self.lengths), tokenizer):
                yield Problem(("lengths",), problem)

    def haystack(self, context: Context) -> Any | None:
        """The tokens to hide something in; None for the form's own filler."""
        return None

    def run(self, context: Context) -> dict[str, Any]:
        """Log the accuracies at each length."""
        text = self.haystack(context)
        progress = context.progress(self.prompts * sum(self.lengths))
        results = []
        for length in self.in_order:
            found = self.answered(context, length, text, progress)
            context.log(*(result.measured(name) for name, result in found.items()))
            results.append(found)
        self.conclude(context, results)
        return self.recorded()

    def recorded(self) -> dict[str, Any]:
        """What the numbers depend on."""
        trials = self.prompts // len(self.described())
        return {"form": self.form, "trials": {str(length): trials for length in self.in_order}}

    def _options(self, context: Context, done: Any) -> dict[str, Any]:
        return {"batch_tokens": self.batch_tokens, "progress": done, "work": context.work}


@dataclass(frozen=True, kw_only=True)
class Passkey(Retrieval, kind="passkey"):
    """Whether the model repeats a key hidden in filler, at each context length."""

    version = 4  # each sequence draws its own positions, where they are drawn

    trials: Annotated[PositiveInt, Doc("The number of trials at each length.")] = 1000

    @property
    def prompts(self) -> int:
        return self.trials

    def described(self) -> Mapping[str, Task]:
        return {"passkey": PasskeyTask(form=self.form)}

    def metrics(self) -> Iterable[Metric]:
        """The accuracy at each length."""
        return [accuracy_by_length(name=PASSKEY, short_name="passkey", lengths=self.lengths)]

    def answered(
        self, context: Context, length: int, text: Any | None, progress: Progress
    ) -> Mapping[str, Answered]:
        done = progress.part(self.trials, weight=length)
        result = passkey_accuracy(
            context.model,
            context.tokenizer,
            length,
            trials=self.trials,
            form=self.form,
            **self._options(context, done),
        )
        return {PASSKEY: result}

    def conclude(self, context: Context, results: Sequence[Mapping[str, Any]]) -> None:
        """Keep the accuracy by depth."""
        found = [result[PASSKEY] for result in results]
        context.keep(by_depth={str(one.length): one.by_depth for one in found})


@dataclass(frozen=True, kw_only=True)
class _InText(Retrieval):
    """Retrieval from real text, if there is a corpus."""

    corpus: Annotated[
        CorpusSection | None,
        Doc("The corpus whose held-out text is the haystack; the default is the passkey's filler."),
    ] = None

    def corpora(self) -> Mapping[str, Corpus]:
        """The haystack, if it is real text."""
        return {} if self.corpus is None else {"corpus": self.corpus}

    def idle_options(self) -> Mapping[str, str]:
        """The haystack, if the form has a filler of its own."""
        reason = f"the {self.form} form has a filler of its own"
        return {} if self.form == "english" else {"corpus": reason}

    def haystack(self, context: Context) -> Any | None:
        if self.corpus is None:
            return None
        return context.text("corpus", max(self.lengths), "a haystack")

    def recorded(self) -> dict[str, Any]:
        haystack = "held-out text" if self.corpus else "filler"
        return {"form": self.form, "haystack": haystack, **super().recorded()}


@dataclass(frozen=True, kw_only=True)
class Needle(_InText, kind="needle"):
    """Whether the model repeats a key at each of some depths of each context length."""

    depths: Annotated[PositiveInt, Doc("The number of depths, equally spaced from 0 to 1.")] = 11
    trials: Annotated[PositiveInt, Doc("The number of trials at each length and depth.")] = 20

    @property
    def prompts(self) -> int:
        return self.depths * self.trials

    @property
    def in_order(self) -> Sequence[int]:
        return sorted(self.lengths)

    def described(self) -> Mapping[str, Task]:
        return {"needle": PasskeyTask(form=self.form)}

    def metrics(self) -> Iterable[Metric]:
        """The accuracy at each length, over all depths."""
        return [
            accuracy_by_length(
                name=NEEDLE, short_name="needle", lengths=self.lengths, corpus=self.corpus
            )
        ]

    def answered(
        self, context: Context, length: int, text: Any | None, progress: Progress
    ) -> Mapping[str, Answered]:
        done = progress.part(self.prompts, weight=length)
        result = needle_accuracy(
            context.model,
            context.tokenizer,
            length,
            depths=self.depths,
            trials=self.trials,
            form=self.form,
            text=text,
            **self._options(context, done),
        )
        return {NEEDLE: result}

    def conclude(self, context: Context, results: Sequence[Mapping[str, Any]]) -> None:
        """Draw a heat map over lengths and depths."""
        context.add_heatmap(depth_heatmap([result[NEEDLE] for result in results]))


@dataclass(frozen=True, kw_only=True)
class Ruler(_InText, kind="ruler"):
    """Whether the model gives exactly the values, or variables, that a prompt asks for."""

    tasks: Annotated[
        tuple[RulerName, ...], MinLen(1), EachOnce(), Doc("The tasks to run; the default is both.")
    ] = ("key-value", "variable-tracking")
    trials: Annotated[PositiveInt, Doc("The number of trials of each task at each length.")] = 500
    keys: Annotated[PositiveInt, Doc("The number of keys that a key-value prompt hides.")] = 4
    queries: Annotated[PositiveInt, Doc("The number of these keys that are asked for at once.")] = 1
    digits: Annotated[int, Interval(ge=1, le=9), Doc("The number of digits of a key's value.")] = 7
    chains: Annotated[PositiveInt, Doc("The number of chains of variables; RULER has one.")] = 1
    hops: Annotated[PositiveInt, Doc("The number of hops between variables in a chain.")] = 4

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """The names of the two RULER tasks."""
        return tuple(RULER)

    @property
    def prompts(self) -> int:
        return self.trials * len(self.tasks)

    def described(self) -> Mapping[RulerName, RulerTask]:  # type: ignore[override]
        """The tasks with their options, by name. Raises ConfigError if one can't have them."""
        found: dict[RulerName, RulerTask] = {}
        for name in self.tasks:
            options = {option: getattr(self, option) for option in RULER_OPTIONS[name]}
            kind = KeyValueTask if name == "key-value" else VariableTrackingTask
            found[name] = kind(form=self.form, **options)
        return found

    def metrics(self) -> Iterable[Metric]:
        """The accuracy of each task at each length."""
        for task in self.tasks:
            yield accuracy_by_length(
                name=RULER[task], short_name=task, lengths=self.lengths, corpus=self.corpus
            )

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
            for task, options in RULER_OPTIONS.items()
            for option in options
            if task not in self.tasks
        }
        return {**idle, **super().idle_options()}

    def run(self, context: Context) -> dict[str, Any]:
        """Log the accuracy of each task at each length."""
        for task in self.described().values():
            task.check(context.tokenizer, min(self.lengths))  # before any of the work
        return super().run(context)

    def answered(
        self, context: Context, length: int, text: Any | None, progress: Progress
    ) -> Mapping[str, Answered]:
        return {
            RULER[name]: ruler_accuracy(
                context.model,
                context.tokenizer,
                task,
                length,
                trials=self.trials,
                text=text,
                **self._options(context, progress.part(self.trials, weight=length)),
            )
            for name, task in self.described().items()
        }

    def conclude(self, context: Context, results: Sequence[Mapping[str, Answered]]) -> None:
        """Nothing beside the accuracies."""


@dataclass(frozen=True)
class PasskeyResult(Answered):
    """Which trials of a length were right, and the depth in [0, 1] of the key in each of them."""

    depths: NDArray[np.float64] = field(kw_only=True)

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


@dataclass(frozen=True)
class NeedleResult(Answered):
    """Which trials of a length were right (depths, trials), and the depths asked for (depths,)."""

    depths: tuple[float, ...] = field(kw_only=True)

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

    def measured(self, name: str) -> Measurement:
        """The accuracy as a metric, with the standard error over trials."""
        count = self.correct.size
        return Measurement(
            name=name, x=self.length, value=self.accuracy, stderr=self.stderr, n=count
        )


def passkey_accuracy(
    model: Any,
    tokenizer: Tokenizer,
    length: int,
    *,
    trials: int,
    form: str = "english",
    **options: Any,
) -> PasskeyResult:
    """Score trials 0 … `trials` − 1 of exactly `length` tokens.

    `model` and `options` are as in exact_match. Raises DataError if the prompt does not fit; what
    the model itself raises is an error too, never a wrong answer.
    """
    prompts = prompt_form(form, tokenizer)
    asked = [prompts.trial(length, i) for i in range(trials)]
    depths = np.array([trial.depth for trial in asked])
    return PasskeyResult(length, _right(model, asked, options), depths=depths)


def needle_accuracy(
    model: Any,
    tokenizer: Tokenizer,
    length: int,
    *,
    depths: int,
    trials: int,
    form: str = "english",
    text: Any | None = None,
    **options: Any,
) -> NeedleResult:
    """Score `trials` prompts of exactly `length` tokens at each of `depths` equally spaced depths.

    `model` and `options` are as in exact_match; `text` (n,) are token ids to hide the key in, or
    None for the form's filler. Raises DataError if the prompt does not fit, or the text is too
    short for it.
    """
    places = needle_depths(depths)
    cells = needle_trials(needle_form(form, tokenizer, text), length, places, trials)
    right = _right(model, [trial for cell in cells for trial in cell], options)
    return NeedleResult(length, right.reshape(depths, trials), depths=places)


def ruler_accuracy(
    model: Any,
    tokenizer: Tokenizer,
    task: RulerTask,
    length: int,
    *,
    trials: int,
    text: Any | None = None,
    **options: Any,
) -> Answered:
    """Score trials 0 … `trials` − 1 of a task, each of exactly `length` tokens.

    `model` and `options` are as in exact_match; `text` (n,) are token ids to hide the statements
    in, or None for the form's filler. Raises DataError if a prompt does not fit, or the text is too
    short for it.
    """
    prompts = task.prompts(tokenizer, text)
    asked = [prompts.trial(length, i) for i in range(trials)]
    return Answered(length, _right(model, asked, options), prompts.chance)


def _right(model: Any, asked: Sequence[Any], options: Mapping[str, Any]) -> NDArray[np.bool_]:
    from fope_lab.evaluation.scoring.exact_match import exact_match

    return exact_match(model, asked, **options)


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
