"""LongBench-E by the length of its questions: prompts, budgets and scores as published.

What differs from LongBench's script (https://github.com/THUDM/LongBench, pred.py and eval.py): a
prompt that is too long is cut at tokens, to exactly what fits, and cutting is counted; Rouge-L is
by default that of the package rouge-score (metrics.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from fope_lab.config.annotations import Doc
from fope_lab.config.checks import EachOnce, KnownName
from fope_lab.data.benchmarks import longbench as source
from fope_lab.data.benchmarks.longbench import BUCKETS, TASKS, LongBenchQuestion
from fope_lab.data.benchmarks.task_files import TaskFiles
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.benchmark import Benchmark, DatasetName
from fope_lab.evaluation.longbench.metrics import ROUGES, classification, qa_f1
from fope_lab.evaluation.scoring.groups import Group
from fope_lab.evaluation.scoring.prompting import FORMATS, Prompt, PromptParts, cut_middle
from fope_lab.stages.metric import WORDS, Metric

TaskName = Annotated[str, KnownName("task", TASKS.keys)]


@dataclass(frozen=True, kw_only=True)
class LongBench(Benchmark, kind="longbench"):
    """Summaries, classes and short answers, scored as published, by the length of the question."""

    dataset: DatasetName = source.DATASET
    tasks: Annotated[tuple[TaskName, ...], MinLen(1), EachOnce(), Doc("The tasks to score.")] = (
        tuple(TASKS)
    )
    rouge: Annotated[
        Literal["rouge-score", "rouge"],
        Doc("The package whose Rouge-L counts; published numbers use rouge."),
    ] = "rouge-score"

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """The names of the tasks of LongBench-E."""
        return tuple(TASKS)

    def metrics(self) -> Iterable[Metric]:
        """The score of each task and their average, in each bucket of lengths in words."""
        steps = tuple(bucket.step for bucket in BUCKETS)
        for task in (*self.tasks, "average"):
            yield Metric(
                name=self.metric_name(task),
                short_name="longbench" if task == "average" else task,
                better="higher",
                unit="percent",
                axis=WORDS,
                xs=steps,
            )

    def metric_name(self, task: str) -> str:
        return f"longbench_{task}_by_words"

    @property
    def files(self) -> TaskFiles:
        """Where the files of LongBench-E are."""
        return source.task_files(self.dataset, self.revision)

    def file_names(self) -> list[str]:
        """One file for each task."""
        return [source.file_of(task) for task in self.tasks]

    def max_new_tokens(self, task: str) -> int:
        """As published for the task."""
        return TASKS[task].max_new_tokens

    def settings(self) -> dict[str, Any]:
        """Which package's Rouge-L counts; each task says its format."""
        return {"rouge": self.rouge}

    def published(self, task: str) -> dict[str, Any]:
        about = TASKS[task]
        return {
            "prompt": about.prompt,
            "format": "plain" if about.few_shot else self.format,
            "max_new_tokens": about.max_new_tokens,
            "metric": about.metric,
        }

    def questions(self, task: str) -> Sequence[LongBenchQuestion]:
        """The first questions of each bucket, as many as `limit` says."""
        return first_of_buckets(source.read_questions(self.files, task), self.limit)

    def group(self, question: LongBenchQuestion) -> Group:
        """The bucket of lengths that the question belongs to."""
        return Group(question.bucket.name, question.bucket.step)

    def about(self, question: LongBenchQuestion) -> dict[str, Any]:
        """The length of the question in words, as the benchmark counts it."""
        return {"words": question.words}

    def prompts(
        self, tokenizer: Tokenizer, task: str, question: LongBenchQuestion, room: int
    ) -> list[Prompt]:
        """A prompt that is too long loses its middle. Few-shot tasks are plain in every format."""
        about = TASKS[task]
        text = about.prompt.format(context=question.context, input=question.input)
        write = FORMATS["plain" if about.few_shot else self.format]
        return [cut_middle(write(tokenizer, PromptParts(text)), room)]

    def stop(self, tokenizer: Tokenizer, task: str) -> Collection[int]:
        """The end of the line, for the task whose answers are a line."""
        return tokenizer.encode("\n")[-1:] if TASKS[task].ends_with_line else ()

    def scores(
        self, task: str, question: LongBenchQuestion, answers: Sequence[str]
    ) -> Iterable[float]:
        """The score for the right answer that is nearest. Of few-shot answers the first line
        counts."""
        about, scorers = TASKS[task], {"qa_f1": qa_f1, "classification": classification}
        score = {**scorers, "rouge_l": ROUGES[self.rouge]}[about.metric]
        for text in answers:
            written = text.lstrip("\n").split("\n")[0] if about.few_shot else text
            yield max(score(written, answer, question.classes) for answer in question.answers)


def first_of_buckets(
    questions: Iterable[LongBenchQuestion], limit: int | None
) -> list[LongBenchQuestion]:
    """The first `limit` questions of each bucket, or all."""
    seen = {bucket.name: 0 for bucket in BUCKETS}
    kept = []
    for question in questions:
        seen[question.bucket.name] += 1
        if limit is None or seen[question.bucket.name] <= limit:
            kept.append(question)
    return kept
