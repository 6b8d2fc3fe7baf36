"""The LongBench-E tasks that the FoPE paper reports (Table 1), and their files.

Bai et al., "LongBench: A Bilingual, Multitask Benchmark for Long Context Understanding", arXiv
2308.14508. Prompts and token limits are data: they are copied word for word as published:
https://github.com/THUDM/LongBench, config/dataset2prompt.json and config/dataset2maxlen.json.
LongBench-E is the subset with about the same number of questions in each bucket of lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fope_lab.data.benchmarks.task_files import TaskFiles, text_of, texts_of, whole_number_of
from fope_lab.data.problems import DataError

DATASET = "THUDM/LongBench"
REVISION = "5e628be450b7e67fb7ae6e201bd6d8f7056f7672"
"""The commit of December 2024. Others have recorded the SHA-256 of its data.zip as
cb45b11a4133c6bc1d6a44b0f8e701335ff1e543195db1103472e575857f7f64."""
ON_HUB = "zip://data/{name}::hf://datasets/{dataset}@{revision}/data.zip"
PLACES = ("", "data")
"""The subfolders in which a local folder may have the files: none, or the `data` of data.zip."""


@dataclass(frozen=True)
class LongBenchTask:
    """LongBench's definition of a task: `prompt` is a template for a question's context and input.

    Few-shot tasks use no chat template, and only the first line of an answer counts. With
    `ends_with_line`, a newline ends an answer, which has at least one token.
    """

    prompt: str
    max_new_tokens: int
    metric: Literal["rouge_l", "qa_f1", "classification"]
    few_shot: bool = False
    ends_with_line: bool = False


TASKS: dict[str, LongBenchTask] = {
    "gov_report": LongBenchTask(
        prompt="You are given a report by a government agency. Write a one-page summary of the "
        "report.\n\nReport:\n{context}\n\nNow, write a one-page summary of the "
        "report.\n\nSummary:",
        max_new_tokens=512,
        metric="rouge_l",
    ),
    "multi_news": LongBenchTask(
        prompt="You are given several news passages. Write a one-page summary of all news. "
        "\n\nNews:\n{context}\n\nNow, write a one-page summary of all the news.\n\nSummary:",
        max_new_tokens=512,
        metric="rouge_l",
    ),
    "trec": LongBenchTask(
        prompt="Please determine the type of the question below. Here are some examples of "
        "questions.\n\n{context}\n{input}",
        max_new_tokens=64,
        metric="classification",
        few_shot=True,
    ),
    "triviaqa": LongBenchTask(
        prompt="Answer the question based on the given passage. Only give me the answer and do not "
        "output any other words. The following are some examples.\n\n{context}\n\n{input}",
        max_new_tokens=32,
        metric="qa_f1",
        few_shot=True,
    ),
    "samsum": LongBenchTask(
        prompt="Summarize the dialogue into a few short sentences. The following are some "
        "examples.\n\n{context}\n\n{input}",
        max_new_tokens=128,
        metric="rouge_l",
        few_shot=True,
        ends_with_line=True,
    ),
}


class Bucket(NamedTuple):
    """The questions whose length in words is at least `start` and below `end`; `step` is the
    bucket's position on an axis."""

    name: str
    start: int
    end: float
    step: int


BUCKETS = (
    Bucket("0-4k", 0, 4000, 4000),
    Bucket("4-8k", 4000, 8000, 8000),
    Bucket("8k+", 8000, float("inf"), 16_000),
)
"""The buckets of LongBench-E (eval.py). A step is the upper bound; for the last bucket, it is twice
the lower bound."""


@dataclass(frozen=True)
class LongBenchQuestion:
    """A question with its answers; `words` is LongBench's count of the words in context, input and
    answers."""

    input: str
    context: str
    answers: tuple[str, ...]
    words: int
    classes: tuple[str, ...]
    """The possible classes of the question, for classification tasks."""

    @property
    def bucket(self) -> Bucket:
        """The bucket of lengths that the question belongs to."""
        return next(bucket for bucket in BUCKETS if bucket.start <= self.words < bucket.end)


def file_of(task: str) -> str:
    """Return the name of a task's file."""
    return f"{task}_e.jsonl"


def task_files(dataset: str, revision: str | None) -> TaskFiles:
    """Return the files of LongBench; without a revision, LongBench on the hub uses REVISION."""
    pinned = REVISION if dataset == DATASET and revision is None else revision
    return TaskFiles(dataset, pinned, ON_HUB, PLACES)


def read_questions(files: TaskFiles, task: str) -> Iterator[LongBenchQuestion]:
    """Yield the questions of a task in the order of the file.

    Raises DataError, with file and line, if a question is not in LongBench's format.
    """
    for where, row in files.rows(file_of(task)):
        classes: tuple[str, ...] = ()
        if TASKS[task].metric == "classification":
            classes = texts_of(row, "all_classes", where)
        words = whole_number_of(row, "length", where)
        if words < 0:
            raise DataError(f"{where}: length is {words}, needs a number of words, at least 0")
        yield LongBenchQuestion(
            input=text_of(row, "input", where),
            context=text_of(row, "context", where),
            answers=texts_of(row, "answers", where),
            words=words,
            classes=classes,
        )
