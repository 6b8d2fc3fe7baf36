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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.problems import DataError
from fope_lab.data.seeding import permutation
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.scoring.batches import Work, one_after_another
from fope_lab.papers.fope.olmo_documents import DownstreamQuestion, DownstreamTask
from fope_lab.stages.result import Measurement
from fope_lab.statistics.intervals import error_of_mean

if TYPE_CHECKING:
    from fope_lab.evaluation.scoring.loglikelihood import Score

Ids = NDArray[np.int64]
MEAN, MEAN_LOSS = "downstream_accuracy", "downstream_loss"


@dataclass(frozen=True)
class TokenizedTask:
    """The questions of a task as a model reads them, with a request for each of their choices.

    A request is a context and a continuation, token ids each. `total` is how many questions the
    task has; `truncated` of the requests have lost the beginning of their context; `longest` is the
    most tokens that the model reads.
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
    """What a task's questions gave, a number for each (questions,): losses in nats per character,
    and whether the right choice was made; `correct` is None for a task without choices."""

    asked: TokenizedTask
    correct: NDArray[np.bool_] | None
    correct_without_space: NDArray[np.bool_] | None
    loss: NDArray[np.float64]
    loss_with_space: NDArray[np.float64]
    bits_per_byte: NDArray[np.float64]
    bits_per_byte_with_space: NDArray[np.float64]

    @property
    def chance(self) -> float:
        """The accuracy that random guessing gives."""
        return float(np.mean([1 / len(question.choices) for question in self.asked.questions]))

    def standard_error(self, values: NDArray[Any]) -> float | None:
        """The standard error of the mean of `values` (questions,); None for a single document.

        Variations of a document are averaged first, so it is the standard error over documents.
        """
        of = [question.document for question in self.asked.questions]
        _, index, variations = np.unique(of, return_inverse=True, return_counts=True)
        means = np.bincount(index, weights=values) / variations
        return error_of_mean(means)

    @property
    def measurements(self) -> list[Measurement]:
        """`<task>_accuracy`, if the task has choices, and `<task>_loss`."""
        name, n = self.asked.task.name, len(self.asked.questions)
        loss = Measurement(
            name=f"{name}_loss",
            value=float(self.loss.mean()),
            stderr=self.standard_error(self.loss),
            n=n,
        )
        if self.correct is None:
            return [loss]
        accuracy = Measurement(
            name=f"{name}_accuracy",
            value=float(self.correct.mean()),
            stderr=self.standard_error(self.correct),
            n=n,
            chance=self.chance,
        )
        return [accuracy, loss]

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


def tokenize_task(
    task: DownstreamTask,
    questions: Sequence[DownstreamQuestion],
    tokenizer: Tokenizer,
    *,
    limit: int | None = None,
    max_length: int | None = None,
) -> TokenizedTask:
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
    return TokenizedTask(task, tuple(kept), tuple(requests), len(questions), truncated, longest)


def _some(
    task: DownstreamTask, questions: Sequence[DownstreamQuestion], limit: int | None
) -> Sequence[DownstreamQuestion]:
    """The questions of `limit` documents, in their order."""
    documents = sorted({question.document for question in questions})
    if limit is None or limit >= len(documents):
        return questions
    drawn = permutation(("downstream", task.name), len(documents))[:limit]
    chosen = {documents[index] for index in drawn}
    return [question for question in questions if question.document in chosen]


def downstream_score(
    model: Any,
    asked: TokenizedTask,
    *,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
    work: Work = one_after_another,
) -> DownstreamResult:
    """Score a task with a model (see score_continuations); `progress` takes the requests done."""
    from fope_lab.evaluation.scoring.loglikelihood import score_continuations

    scores = score_continuations(
        model, asked.requests, batch_tokens=batch_tokens, progress=progress, work=work
    )
    return result_of(asked, scores)


def result_of(asked: TokenizedTask, scores: Sequence[Score]) -> DownstreamResult:
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


def mean_accuracy(results: Sequence[DownstreamResult]) -> Measurement | None:
    """The mean accuracy of tasks with choices, each counting the same.

    None for fewer than two such tasks.
    """
    chosen = [(one, one.correct) for one in results if one.correct is not None]
    chance = float(np.mean([one.chance for one, _ in chosen])) if chosen else None
    return _mean(MEAN, chosen, chance)


def mean_loss(results: Sequence[DownstreamResult]) -> Measurement | None:
    """The mean loss of the tasks in nats per character, each counting the same.

    None for fewer than two tasks.
    """
    return _mean(MEAN_LOSS, [(one, one.loss) for one in results])


def _mean(
    name: str,
    of_tasks: Sequence[tuple[DownstreamResult, NDArray[Any]]],
    chance: float | None = None,
) -> Measurement | None:
    """The mean over tasks of the means over their questions, with its standard error."""
    if len(of_tasks) < 2:
        return None
    errors = [one.standard_error(values) for one, values in of_tasks]
    known = [error for error in errors if error is not None]
    return Measurement(
        name=name,
        value=float(np.mean([values.mean() for _, values in of_tasks])),
        stderr=math.hypot(*known) / len(known) if len(known) == len(errors) else None,
        n=len(of_tasks),
        chance=chance,
    )
