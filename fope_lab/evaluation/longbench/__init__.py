"""LongBench-E by the length of its questions: prompts, budgets and scores as published.

What differs from LongBench's script (https://github.com/THUDM/LongBench, pred.py and eval.py): a
prompt that is too long is cut at tokens, to exactly what fits, and cutting is counted; Rouge-L is
by default that of the package rouge-score (metrics.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import MinLen

from fope_lab.config.annotations import Doc
from fope_lab.config.checks import EachOnce, KnownName
from fope_lab.data.benchmarks import longbench as source
from fope_lab.data.benchmarks.longbench import BUCKETS, TASKS, LongBenchQuestion, LongBenchTask
from fope_lab.data.benchmarks.task_files import TaskFiles
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.benchmark import Benchmark, DatasetName, Group
from fope_lab.evaluation.longbench.metrics import ROUGES, AnswerScore, classification, qa_f1
from fope_lab.evaluation.scoring.prompting import FORMATS, Prompt, PromptParts, cut_middle
from fope_lab.evaluation.scoring.scored_answers import ScoredQuestion, ask, room_for_prompts
from fope_lab.stages.metric import WORDS, Metric

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context

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

    def budget(self) -> tuple[str, int]:
        """The budget of the summaries, if there are some."""
        budgets = {task: TASKS[task].max_new_tokens for task in self.tasks}
        return max(budgets.items(), key=lambda budget: budget[1])

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
        """The question's length."""
        return {"words": question.words}

    def answers(
        self,
        context: Context,
        task: str,
        questions: Sequence[LongBenchQuestion],
        context_length: int,
        progress: Callable[[int], None],
    ) -> list[ScoredQuestion]:
        return longbench(
            context.model,
            context.tokenizer,
            task,
            questions,
            context_length=context_length,
            format=self.format,
            rouge=self.rouge,
            batch_tokens=self.batch_tokens,
            progress=progress,
        )


def longbench(
    model: Any,
    tokenizer: Tokenizer,
    task: str,
    questions: Sequence[LongBenchQuestion],
    *,
    context_length: int,
    format: str = "plain",
    rouge: str = "rouge-score",
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
) -> list[ScoredQuestion]:
    """A task's questions, answered and scored, in their order.

    A prompt and its answer are at most `context_length` tokens; a longer prompt loses its middle.
    `format` is a name of prompting.FORMATS; few-shot tasks are always plain, as LongBench has them.
    `rouge` is a name of metrics.ROUGES. For `model` and the rest see generating.answer.

    Raises DataError if there is no room for a prompt, or the tokenizer can't write the format.
    """
    about = TASKS[task]
    room = room_for_prompts(context_length, about.max_new_tokens)
    prompts = [_prompt(tokenizer, about, question, format, room) for question in questions]
    answers = ask(
        model,
        tokenizer,
        prompts,
        context_length=context_length,
        max_new_tokens=about.max_new_tokens,
        stop=tokenizer.encode("\n")[-1:] if about.ends_with_line else (),
        min_new_tokens=int(about.ends_with_line),
        batch_tokens=batch_tokens,
        progress=progress,
    )
    metric = metric_of(about, rouge)
    return [
        ScoredQuestion(
            asked=((len(prompt.ids), prompt.left_out),),
            answers=(answer,),
            scores=(score(about, metric, question, answer.text),),
        )
        for question, prompt, answer in zip(questions, prompts, answers, strict=True)
    ]


def _prompt(
    tokenizer: Tokenizer, task: LongBenchTask, question: LongBenchQuestion, format: str, room: int
) -> Prompt:
    text = task.prompt.format(context=question.context, input=question.input)
    write = FORMATS["plain" if task.few_shot else format]
    return cut_middle(write(tokenizer, PromptParts(text)), room)


def metric_of(task: LongBenchTask, rouge: str) -> AnswerScore:
    """The function that scores a task's answers."""
    return {"rouge_l": ROUGES[rouge], "qa_f1": qa_f1, "classification": classification}[task.metric]


def score(
    task: LongBenchTask, metric: AnswerScore, question: LongBenchQuestion, text: str
) -> float:
    """The score of what was written, in percent, for the right answer that it comes nearest to."""
    if task.few_shot:
        text = text.lstrip("\n").split("\n")[0]
    return 100 * max(metric(text, answer, question.classes) for answer in question.answers)


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
