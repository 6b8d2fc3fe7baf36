"""Accuracy on multiple choice, and the loss of right answers (FoPE, Tables 4–6).

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.benchmarks.downstream import TASKS, DownstreamTask, Question
from fope_lab.data.problems import DataError
from fope_lab.data.seeding import permutation
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.checkpoint import load_parent
from fope_lab.evaluation.loglikelihood import Score, score_continuations

if TYPE_CHECKING:
    from fope_lab.stages import Downstream
    from fope_lab.store import Attempt

Ids = NDArray[np.int64]
MEAN = "downstream_accuracy"


@dataclass(frozen=True)
class Asked:
    """The questions of a task as a model reads them: a request for each choice, question by
    question.

    `total` is how many questions the task has; `truncated` of the requests have lost the beginning
    of their context; `longest` is the most tokens that the model reads.
    """

    task: DownstreamTask
    questions: tuple[Question, ...]
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
    """What a task's questions gave, a number for each (questions,): losses in nats per character,
    and whether the right choice was made; `correct` is None for a task without choices."""

    asked: Asked
    correct: NDArray[np.bool_] | None
    correct_without_space: NDArray[np.bool_] | None
    loss: NDArray[np.float64]
    loss_with_space: NDArray[np.float64]
    bits_per_byte: NDArray[np.float64]
    bits_per_byte_with_space: NDArray[np.float64]

    @property
    def chance(self) -> float:
        """The accuracy of guessing."""
        return float(np.mean([1 / len(question.choices) for question in self.asked.questions]))

    def standard_error(self, values: NDArray[Any]) -> float | None:
        """Of the mean of `values`, a number for each question: the deviation between documents, of
        whose variations the mean counts, by √documents; None for a single document."""
        of = [question.document for question in self.asked.questions]
        _, index, variations = np.unique(of, return_inverse=True, return_counts=True)
        means = np.bincount(index, weights=values) / variations
        return float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else None

    def metrics(self) -> dict[str, float]:
        """What a stage logs: `<task>_accuracy` if there are choices, `<task>_loss`, and the
        standard errors of both."""
        found: dict[str, float] = {}
        for name, values in (("accuracy", self.correct), ("loss", self.loss)):
            if values is None:
                continue
            metric = f"{self.asked.task.name}_{name}"
            found[metric] = float(values.mean())
            if (error := self.standard_error(values)) is not None:
                found[f"{metric}_stderr"] = error
        return found

    def as_json(self) -> dict[str, Any]:
        """What result.json says of the task."""
        asked = self.asked
        said = {
            "task": asked.task.name,
            "olmo_eval": asked.task.label,
            "decides": asked.task.decides,
            **asked.as_json(),
            **{
                name: None if values is None else float(values.mean())
                for name, values in (
                    ("accuracy", self.correct),
                    ("accuracy_without_space", self.correct_without_space),
                    ("loss", self.loss),
                    ("loss_with_space", self.loss_with_space),
                    ("bits_per_byte", self.bits_per_byte),
                    ("bits_per_byte_with_space", self.bits_per_byte_with_space),
                )
            },
        }
        return said if self.correct is None else {**said, "chance": self.chance}


def ask(
    task: DownstreamTask,
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    *,
    limit: int | None = None,
    max_length: int | None = None,
) -> Asked:
    """Questions in tokens.

    With `limit`, that many documents of the task's at most, drawn alike for every model. With
    `max_length`, the model reads that many tokens at most, and longer contexts lose their
    beginning. Raises DataError if that leaves a continuation without context.
    """
    kept = _some(task, questions, limit)
    texts = list(dict.fromkeys(text for one in kept for pair in one.choices for text in pair))
    ids = {
        text: np.array(found, np.int64)
        for text, found in zip(texts, tokenizer.encode_batch(texts), strict=True)
    }
    prefix = np.array(tokenizer.prefix_ids, np.int64)
    contexts = {context: ids[context] for one in kept for context, _ in one.choices}
    if len(prefix):  # else the array is the same for all choices
        contexts = {text: np.concatenate([prefix, found]) for text, found in contexts.items()}
    requests, truncated, longest = [], 0, 0
    for one in kept:
        for context, continuation in one.choices:
            before, after = contexts[context], ids[continuation]
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
    return Asked(task, tuple(kept), tuple(requests), len(questions), truncated, longest)


def _some(
    task: DownstreamTask, questions: Sequence[Question], limit: int | None
) -> Sequence[Question]:
    """The questions of `limit` documents, in their order."""
    documents = sorted({question.document for question in questions})
    if limit is None or limit >= len(documents):
        return questions
    drawn = permutation(("downstream", task.name), len(documents))[:limit]
    chosen = {documents[index] for index in drawn}
    return [question for question in questions if question.document in chosen]


def downstream_score(
    model: Any,
    asked: Asked,
    *,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
) -> DownstreamResult:
    """Score a task with a model (see score_continuations); `progress` takes the requests done."""
    scores = score_continuations(
        model, asked.requests, batch_tokens=batch_tokens, progress=progress
    )
    return result_of(asked, scores)


def result_of(asked: Asked, scores: Sequence[Score]) -> DownstreamResult:
    """The result of a task from its requests' scores."""
    correct, without_space = [], []
    measures: dict[str, list[float]] = {name: [] for name in MEASURES}
    first = 0
    for question in asked.questions:
        mine = scores[first : first + len(question.choices)]
        first += len(mine)
        logprobs = np.array([score.logprob for score in mine])
        texts = [text for _, text in question.choices]
        for measure, size in MEASURES.items():
            right = question.right
            measures[measure].append(float(-logprobs[right] / size(texts[right])))
        if asked.task.decides is not None:
            decides = DECISIONS[asked.task.decides]
            correct.append(int(np.argmax(decides(logprobs, texts))) == question.right)
            texts = [text[1:] for text in texts]
            without_space.append(int(np.argmax(decides(logprobs, texts))) == question.right)
    chooses = asked.task.decides is not None
    return DownstreamResult(
        asked,
        np.array(correct) if chooses else None,
        np.array(without_space) if chooses else None,
        **{name: np.array(values) for name, values in measures.items()},
    )


MEASURES: dict[str, Callable[[str], float]] = {
    "loss": lambda text: len(text) - 1,
    "loss_with_space": len,
    "bits_per_byte": lambda text: len(text[1:].encode()) * math.log(2),
    "bits_per_byte_with_space": lambda text: len(text.encode()) * math.log(2),
}
"""What nats of a right continuation are divided by."""
DECISIONS: Mapping[str, Callable[[NDArray[np.float64], Sequence[str]], NDArray[np.float64]]] = {
    "log-probability": lambda logprobs, texts: logprobs,
    "log-probability per character": lambda logprobs, texts: logprobs / [len(t) for t in texts],
}
"""What is greatest for the choice that is made, from log-probabilities in nats and their texts."""


def run(stage: Downstream, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Log each task's metrics, and of several with choices the mean, `downstream_accuracy`."""
    store = attempt.folder.path.parents[1]
    model, tokenizer = load_parent(parents, stage.resources)
    tasks = [TASKS[name] for name in stage.tasks]
    asked = [
        ask(
            task,
            task.questions(store),
            tokenizer,
            limit=stage.limit,
            max_length=stage.max_length,
        )
        for task in tasks
    ]
    _check_room(model, asked)  # before any of the work
    total = sum(len(one.requests) for one in asked)
    done = 0
    results = []
    for one in asked:

        def progress(requests: int, before: int = done) -> None:
            attempt.progress(before + requests, total)

        result = downstream_score(model, one, batch_tokens=stage.batch_tokens, progress=progress)
        done += len(one.requests)
        attempt.log(0, result.metrics())
        results.append(result)
    mean = mean_accuracy(results)
    if mean:
        attempt.log(0, mean)
    chances = [result.chance for result in results if result.correct is not None]
    return {
        **mean,
        "chance": {MEAN: float(np.mean(chances))} if mean else {},
        "limit": stage.limit,
        "max_length": stage.max_length,
        # Beside the tasks' measurements, since a report shows them apart from what was asked.
        "asked": {one.task.name: one.as_json() for one in asked},
        "tasks": [result.as_json() for result in results],
    }


def mean_accuracy(results: Sequence[DownstreamResult]) -> dict[str, float]:
    """The mean accuracy of tasks with choices, each counting the same, and its standard error; of
    one task nothing, since its accuracy is that."""
    chosen = [(one, one.correct) for one in results if one.correct is not None]
    if len(chosen) < 2:
        return {}
    found = {MEAN: float(np.mean([correct.mean() for _, correct in chosen]))}
    errors = [one.standard_error(correct) for one, correct in chosen]
    known = [error for error in errors if error is not None]
    if len(known) == len(errors):
        found[f"{MEAN}_stderr"] = math.hypot(*known) / len(known)
    return found


def _check_room(model: Any, asked: Sequence[Asked]) -> None:
    """Raises DataError if a task's contexts are longer than the model has positions for."""
    limits = [one.definition.longest(one.shape) for one in model.position_embeddings]
    room = min((limit for limit in limits if limit is not None), default=None)
    for one in asked:
        if room is not None and one.longest > room:
            raise DataError(
                f"{one.task.name} has a context and continuation of {one.longest} tokens, and the "
                f"embedding has positions for {room}; max_length: {room} would leave out the "
                "beginning of such contexts"
            )
