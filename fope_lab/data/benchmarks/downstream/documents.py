"""Zero-shot tasks whose prompts are built from the rows of a dataset.

The wording of the prompts and the order of the choices are olmo_eval's, which took them from
EleutherAI's harness: a different wording would be a different task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fope_lab.data.benchmarks.downstream.base import (
    Decides,
    DownstreamQuestion,
    DownstreamTask,
    choices,
    documents,
)

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
