"""Tasks whose prompts are made of a dataset's rows, with no examples before the question.

The words of the prompts, and the order of the choices, are olmo_eval's, which has them from
EleutherAI's harness: other words would be other tasks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.data.benchmarks.downstream.base import (
    Decides,
    DownstreamTask,
    Question,
    choices,
    documents,
)

Choices = tuple[tuple[str, str], ...]
Prompt = Callable[[Mapping[str, Any]], tuple[Choices, int]]
"""From a row to the choices and the number of the right one."""

SUM: Decides = "log-probability"
PER_CHARACTER: Decides = "log-probability per character"


def lettered(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """A question and choices with letters or numbers (ARC and those in its format)."""
    offered = row["choices"]
    right = offered["label"].index(row["answerKey"])
    return choices(f"Question: {row['question']}\nAnswer:", offered["text"]), right


def boolq(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """A passage and a question to answer by yes or no."""
    context = f"{row['passage']}\nQuestion: {row['question']}?\nAnswer:"
    return choices(context, ("yes", "no")), 0 if row["answer"] else 1


def commitment_bank(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Whether a text entails a sentence, contradicts it or neither."""
    asked = f"Question: {row['hypothesis']}. True, False or Neither?"
    return choices(f"{row['premise']}\n{asked}\nAnswer:", ("True", "False", "Neither")), row[
        "label"
    ]


def copa(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """What a sentence, without its full stop, is caused by or leads to."""
    link = {"cause": "because", "effect": "therefore"}[row["question"]]
    answers = [row[name][:1].lower() + row[name][1:] for name in ("choice1", "choice2")]
    return choices(f"{row['premise'].strip()[:-1]} {link}", answers), row["label"]


def hellaswag(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """How a description goes on, without what WikiHow's markup left in it."""
    context = f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"
    endings = [_without_markup(ending) for ending in row["endings"]]
    return choices(_without_markup(context), endings), int(row["label"])


def _without_markup(text: str) -> str:
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def openbook_qa(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """A sentence to complete."""
    offered = row["choices"]
    right = offered["label"].index(row["answerKey"].strip())
    return choices(row["question_stem"], offered["text"]), right


def piqa(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Which of two ways leads to a goal."""
    return choices(f"Question: {row['goal']}\nAnswer:", (row["sol1"], row["sol2"])), row["label"]


def rte(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Whether one sentence entails another."""
    asked = f"Question: {row['sentence2']} True or False?"
    return choices(f"{row['sentence1']}\n{asked}\nAnswer:", ("True", "False")), row["label"]


def sciq(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """A question after the passage that holds the answer, which is always the last choice."""
    names = ("distractor1", "distractor2", "distractor3", "correct_answer")
    context = f"{row['support'].strip()}\nQuestion: {row['question']}\nAnswer:"
    return choices(context, [row[name] for name in names]), 3


def social_iqa(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """A question about people in a situation."""
    context = f"Question: {row['context']} {row['question']}\nAnswer:"
    answers = [row[name] for name in ("answerA", "answerB", "answerC")]
    return choices(context, answers), int(row["label"]) - 1


def sst2(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Whether a film's review is negative or positive."""
    text = row["sentence"]
    for spaced, joined in ((" n't", "n't"), (" )", ")"), ("( ", "("), ('" ', '"'), (' "', '"')):
        text = text.replace(spaced, joined)
    text = re.sub(r" (['.,])", r"\1", text)
    context = f"{text}\nQuestion: Is this sentence positive or negative?\nAnswer:"
    return choices(context, ("negative", "positive")), row["label"]


def winogrande(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """Two names for a gap: the end of the sentence is scored after each."""
    before, _, after = row["sentence"].partition("_")
    found = tuple((before + row[name], f" {after.strip()}") for name in ("option1", "option2"))
    return found, int(row["answer"]) - 1


def natural_questions(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """The first of the known answers to a search query."""
    return choices(f"\nQuestion: {row['question']}\nAnswer:", row["answer"][:1]), 0


def trivia_qa(row: Mapping[str, Any]) -> tuple[Choices, int]:
    """The answer as Wikipedia spells it."""
    return choices(f"\nQuestion: {row['question']}\nAnswer:", [row["answer"]["value"]]), 0


@dataclass(frozen=True)
class Rows:
    """Reads the held-out rows of a dataset as questions."""

    folder: str
    prompt: Prompt

    def __call__(self, data: Path) -> Iterator[Question]:
        """The questions in the data's order."""
        for number, row in enumerate(documents(data, self.folder, "validation")):
            found, right = self.prompt(row)
            yield Question(found, right, number)


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
"""Name, what the label has more, what decides, where the rows lie, and the prompt."""

DOCUMENT_TASKS = tuple(
    DownstreamTask(name, name + more, decides, Rows(folder, prompt))
    for name, more, decides, folder, prompt in _TABLE
)
