"""Retrieval from long prompts: passkey, needle in a haystack, and two of RULER's tasks.

A prompt of exactly so many tokens hides something, asks for it at its end, and is right if the
model gives every token of the one right answer. One forward pass scores a prompt
(scoring/exact_match.py). RULER counts how many of the values a generated text holds; here the
answer, which has one spelling, is scored whole.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from annotated_types import MinLen
from numpy.typing import NDArray

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import EachOnce
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import FieldPath, Problem, collecting
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.tasks.base import Task, task_problem
from fope_lab.data.tasks.passkey import Form, PasskeyTask, Trial, needle_depths, prompt_form
from fope_lab.data.tasks.ruler_tasks import KeyValueTask, RulerTask, VariableTrackingTask
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.base import LengthsOption, ModelEvaluation
from fope_lab.stages.base import ForwardPass
from fope_lab.stages.metric import Measurement, Metric, accuracy_by_length
from fope_lab.stages.sections import CorpusSection
from fope_lab.statistics.intervals import error_of_mean, wilson_interval

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context

PASSKEY, NEEDLE = "passkey_accuracy_by_length", "needle_accuracy_by_length"
METRICS: Mapping[str, str] = {
    "passkey": PASSKEY,
    "needle": NEEDLE,
    "key-value": "ruler_key_value_accuracy_by_length",
    "variable-tracking": "ruler_variable_tracking_accuracy_by_length",
}
"""The metric of each task by its name."""
TENTHS = 10
"""The ranges of depth; a passkey result has an accuracy for each."""
RulerName = Literal["key-value", "variable-tracking"]
RULER: Mapping[RulerName, tuple[type[RulerTask], tuple[str, ...]]] = {
    "key-value": (KeyValueTask, ("keys", "queries", "digits")),
    "variable-tracking": (VariableTrackingTask, ("chains", "hops")),
}
"""Each of RULER's tasks, and the fields that concern it alone."""


class Answered(NamedTuple):
    """Which prompts of a length were answered right (prompts,), the depths in [0, 1] of what they
    hide, and the accuracy of guessing, if known."""

    length: int
    correct: NDArray[np.bool_]
    depths: Sequence[float]
    chance: float | None = None

    @property
    def accuracy(self) -> float:
        """The share of prompts whose whole answer was right."""
        return float(self.correct.mean())


@dataclass(frozen=True, kw_only=True)
class Retrieval(ModelEvaluation):
    """Prompts of exactly each of some lengths, each with one right answer."""

    lengths: LengthsOption
    form: Form = "english"

    @property
    def names(self) -> Sequence[str]:
        """What is asked: keys of METRICS, by default the name of the kind."""
        return (str(self.kind),)

    @property
    @abstractmethod
    def prompts(self) -> int:
        """How many prompts of each task there are at each length."""

    @property
    def in_order(self) -> Sequence[int]:
        """The lengths in the order in which they are measured."""
        return self.lengths

    def described(self) -> Mapping[str, Task]:
        """The tasks by name, as prompts are built from them; by default each is a passkey."""
        return dict.fromkeys(self.names, PasskeyTask(form=self.form))

    @abstractmethod
    def asked(
        self, tokenizer: Tokenizer, length: int, name: str, text: Any | None
    ) -> tuple[Sequence[Trial], float | None]:
        """The prompts of a task, each of exactly `length` tokens, and the accuracy of guessing."""

    def score(
        self,
        model: Any,
        tokenizer: Tokenizer,
        length: int,
        name: str,
        text: Any | None = None,
        **options: Any,
    ) -> Answered:
        """Have a model answer the prompts of a task.

        `text` (n,) are token ids to hide something in, or None for the form's filler; `options` are
        those of exact_match. Raises DataError if a prompt does not fit, or the text is too short.
        """
        from fope_lab.evaluation.scoring.exact_match import exact_match

        trials, chance = self.asked(tokenizer, length, name, text)
        right = exact_match(model, trials, **options)
        return Answered(length, right, [trial.depth for trial in trials], chance)

    def measured(self, result: Answered) -> dict[str, Any]:
        """How sure the accuracy is: Wilson's 95 % interval."""
        return {"ci95": wilson_interval(int(result.correct.sum()), result.correct.size)}

    def conclude(self, context: Context, results: Sequence[Answered]) -> None:
        """Keep what belongs to all lengths together."""

    def metrics(self) -> Iterable[Metric]:
        """The accuracy of each task at each length."""
        corpus = self.corpora().get("corpus")
        for name in self.names:
            yield accuracy_by_length(
                name=METRICS[name], short_name=name, lengths=self.lengths, corpus=corpus
            )

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        return ("lengths",), max(self.lengths)

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        prompts = self.prompts * len(self.names)
        return [ForwardPass(length, prompts) for length in self.lengths]

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[Problem]:
        for task in self.described().values():
            if problem := task_problem(task, min(self.lengths), tokenizer):
                yield Problem(("lengths",), problem)

    def haystack(self, context: Context) -> Any | None:
        """The tokens to hide something in; None for the form's own filler."""
        return None

    def run(self, context: Context) -> dict[str, Any]:
        """Log the accuracies at each length."""
        text = self.haystack(context)
        scoring = context.scoring(self.prompts * len(self.names) * sum(self.lengths))
        results: list[Answered] = []
        for length in self.in_order:
            found = {
                name: self.score(
                    context.model,
                    context.tokenizer,
                    length,
                    name,
                    text,
                    **scoring.part(self.prompts, weight=length),
                )
                for name in self.names
            }
            context.log(
                *(
                    Measurement(
                        name=METRICS[name],
                        x=length,
                        value=result.accuracy,
                        n=result.correct.size,
                        chance=result.chance,
                        **self.measured(result),
                    )
                    for name, result in found.items()
                )
            )
            results += found.values()
        self.conclude(context, results)
        return self.recorded()

    def recorded(self) -> dict[str, Any]:
        """What the numbers depend on."""
        trials = {str(length): self.prompts for length in self.in_order}
        return {"form": self.form, "trials": trials}


@dataclass(frozen=True, kw_only=True)
class Passkey(Retrieval, kind="passkey"):
    """Whether the model repeats a key hidden in filler, at each context length."""

    version = 4  # each sequence draws its own positions, where they are drawn

    trials: Annotated[PositiveInt, Doc("The number of trials at each length.")] = 1000

    @property
    def prompts(self) -> int:
        return self.trials

    def asked(
        self, tokenizer: Tokenizer, length: int, name: str, text: Any | None
    ) -> tuple[Sequence[Trial], float | None]:
        prompts = prompt_form(self.form, tokenizer)
        return [prompts.trial(length, i) for i in range(self.trials)], None

    def conclude(self, context: Context, results: Sequence[Answered]) -> None:
        context.keep(by_depth={str(one.length): by_depth(one) for one in results})

    def heatmaps_in(self, details: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        return depth_heatmaps(details)


def by_depth(result: Answered) -> list[dict[str, float]]:
    """Accuracy and number of trials in each tenth of the depths that holds a trial."""
    tenth = np.minimum((np.array(result.depths) * TENTHS).astype(int), TENTHS - 1)
    return [
        {
            "depth": (index + 0.5) / TENTHS,
            "accuracy": float(result.correct[tenth == index].mean()),
            "trials": int((tenth == index).sum()),
        }
        for index in range(TENTHS)
        if (tenth == index).any()
    ]


def depth_heatmaps(details: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The passkey's heat map, in a list; empty if the details have none that can be read."""
    try:
        lengths = {
            int(length): {float(entry["depth"]): float(entry["accuracy"]) for entry in entries}
            for length, entries in details["by_depth"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return []
    xs = sorted(lengths)
    depths = sorted({depth for by_depth in lengths.values() for depth in by_depth})
    if not depths:
        return []
    return [
        {
            "title": "Passkey accuracy by depth and context length",
            "metric": PASSKEY,
            "x_label": "context length, tokens",
            "y_label": "depth of the key, %",
            "x": xs,
            "y": [round(100 * depth, 1) for depth in depths],
            "values": [[lengths[x].get(depth) for x in xs] for depth in depths],
            "low": 0.0,
            "high": 1.0,
        }
    ]


@dataclass(frozen=True, kw_only=True)
class _InText(Retrieval):
    """Retrieval from real text, if there is a corpus."""

    corpus: Annotated[
        CorpusSection | None,
        Doc("The corpus whose held-out text is the haystack; the default is the passkey's filler."),
    ] = None

    def corpora(self) -> Mapping[str, Corpus]:
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

    def asked(
        self, tokenizer: Tokenizer, length: int, name: str, text: Any | None
    ) -> tuple[Sequence[Trial], float | None]:
        prompts, depths = prompt_form(self.form, tokenizer, text=text), needle_depths(self.depths)
        return [prompts.trial(length, i, at) for at in depths for i in range(self.trials)], None

    def measured(self, result: Answered) -> dict[str, Any]:
        """A standard error over trials: those of all depths have one key and one text, and so are
        not independent."""
        by_depth = result.correct.reshape(self.depths, self.trials)
        return {"stderr": error_of_mean(by_depth.mean(axis=0))}

    def heatmap(self, results: Sequence[Answered]) -> dict[str, Any]:
        """Accuracy by depth (rows) and length (columns), as reports draw it."""
        shape = (len(results), self.depths, self.trials)
        right = np.stack([result.correct for result in results]).reshape(shape)
        return {
            "title": "Needle accuracy by depth and context length",
            "metric": "needle_accuracy",
            "x_label": "context length, tokens",
            "y_label": "depth of the needle, %",
            "x": [result.length for result in results],
            "y": [round(100 * depth, 1) for depth in needle_depths(self.depths)],
            "values": right.mean(axis=2).T.tolist(),
            "low": 0.0,
            "high": 1.0,
        }

    def conclude(self, context: Context, results: Sequence[Answered]) -> None:
        context.add_heatmap(self.heatmap(results))


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
        return tuple(RULER)

    @property
    def names(self) -> Sequence[str]:
        return self.tasks

    @property
    def prompts(self) -> int:
        return self.trials

    def described(self) -> dict[str, RulerTask]:
        """Raises ConfigError if a task can't have its options."""
        tasks: dict[str, RulerTask] = {}
        for name in self.tasks:
            task, options = RULER[name]
            own = {option: getattr(self, option) for option in options}
            tasks[name] = task(form=self.form, **own)
        return tasks

    def problems(self) -> Iterable[Problem]:
        yield from super().problems()
        found: list[Problem] = []
        with collecting(found):
            self.described()
        yield from found

    def idle_options(self) -> Mapping[str, str]:
        """The options of a task that is not run, and the haystack of a form with its own filler."""
        idle = {
            option: f"{task} is not among the tasks"
            for task, (_, options) in RULER.items()
            for option in options
            if task not in self.tasks
        }
        return {**idle, **super().idle_options()}

    def run(self, context: Context) -> dict[str, Any]:
        """Log the accuracy of each task at each length."""
        for task in self.described().values():
            task.check(context.tokenizer, min(self.lengths))  # before any of the work
        return super().run(context)

    def asked(
        self, tokenizer: Tokenizer, length: int, name: str, text: Any | None
    ) -> tuple[Sequence[Trial], float | None]:
        prompts = self.described()[name].prompts(tokenizer, text)
        return [prompts.trial(length, i) for i in range(self.trials)], prompts.chance
