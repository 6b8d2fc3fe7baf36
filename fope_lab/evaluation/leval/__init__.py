"""L-Eval's closed-ended tasks: prompts, budget and exact match as published.

What differs from L-Eval's scripts (https://github.com/OpenLMLab/LEval, Baselines and Evaluation):
only a document whose prompt does not fit is cut, and at a token (there at a word, 250 words at a
time, whether or not the rest of the prompt fits), so that prompt and answer are within the context,
and cutting is counted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import MinLen

from fope_lab.config.annotations import Doc
from fope_lab.config.checks import EachOnce, KnownName
from fope_lab.data.benchmarks import leval as source
from fope_lab.data.benchmarks.leval import MAX_NEW_TOKENS, TASKS, LEvalQuestion, LEvalTask
from fope_lab.data.benchmarks.task_files import TaskFiles
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.benchmark import Benchmark, DatasetName
from fope_lab.evaluation.leval.metrics import METRICS
from fope_lab.evaluation.scoring.prompting import (
    FORMATS,
    KEEPS,
    Format,
    Prompt,
    PromptParts,
    fit_document,
    plain,
)
from fope_lab.evaluation.scoring.scored_answers import ScoredQuestion, ask, room_for_prompts
from fope_lab.stages.metric import Metric

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context

TaskName = Annotated[str, KnownName("task", TASKS.keys)]


@dataclass(frozen=True, kw_only=True)
class LEval(Benchmark, kind="leval"):
    """Questions of long documents that have one right answer."""

    dataset: DatasetName = source.DATASET
    tasks: Annotated[tuple[TaskName, ...], MinLen(1), EachOnce(), Doc("The tasks to score.")] = (
        source.TABLE_2
    )

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """The closed-ended tasks of L-Eval."""
        return tuple(TASKS)

    def metrics(self) -> Iterable[Metric]:
        """The score of each task, and of several their average."""
        for task in (*self.tasks, *(["average"] if len(self.tasks) > 1 else [])):
            yield Metric(
                name=self.metric_name(task),
                short_name="leval" if task == "average" else task,
                better="higher",
                unit="percent",
            )

    def metric_name(self, task: str) -> str:
        return f"leval_{task}"

    @property
    def files(self) -> TaskFiles:
        """Where the files of L-Eval are."""
        return source.task_files(self.dataset, self.revision)

    def file_names(self) -> list[str]:
        """One file for each task."""
        return [source.file_of(task) for task in self.tasks]

    def budget(self) -> tuple[str, int]:
        """The first task, since all tasks have the same budget."""
        return self.tasks[0], MAX_NEW_TOKENS

    def published(self, task: str) -> dict[str, Any]:
        about = TASKS[task]
        return {
            "instructions": about.instructions,
            "question": about.question,
            "lead": about.lead,
            "max_new_tokens": MAX_NEW_TOKENS,
            "metric": about.metric,
        }

    def questions(self, task: str) -> Sequence[LEvalQuestion]:
        """The first questions of a task, as many as `limit` says."""
        return list(islice(source.read_questions(self.files, task), self.limit))

    def prompts_of_a_question(self, task: str) -> int:
        """Two where a question is asked again without the document."""
        return prompts_each(task)

    def answers(
        self,
        context: Context,
        task: str,
        questions: Sequence[LEvalQuestion],
        context_length: int,
        progress: Callable[[int], None],
    ) -> list[ScoredQuestion]:
        return leval(
            context.model,
            context.tokenizer,
            task,
            questions,
            context_length=context_length,
            format=self.format,
            batch_tokens=self.batch_tokens,
            progress=progress,
        )


def leval(
    model: Any,
    tokenizer: Tokenizer,
    task: str,
    questions: Sequence[LEvalQuestion],
    *,
    context_length: int,
    format: str = "plain",
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
) -> list[ScoredQuestion]:
    """A task's questions, answered and scored, in their order.

    A prompt and its answer are at most `context_length` tokens; where the prompt is longer, its
    document loses its end (code: its beginning). `format` is a name of prompting.FORMATS; L-Eval
    puts a question about a fact as it is. `progress` takes how many prompts are answered; for
    `model` and the rest see generating.answer.

    Raises DataError if there is no room for a prompt, or the tokenizer can't write the format.
    """
    about = TASKS[task]
    room = room_for_prompts(context_length, MAX_NEW_TOKENS)
    prompts = [
        prompt
        for question in questions
        for prompt in _prompts(tokenizer, about, question, FORMATS[format], room)
    ]
    answers = ask(
        model,
        tokenizer,
        prompts,
        context_length=context_length,
        max_new_tokens=MAX_NEW_TOKENS,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    each = prompts_each(task)
    metric = METRICS[about.metric]
    scored = []
    for index, question in enumerate(questions):
        own = slice(index * each, (index + 1) * each)
        scores = metric([answer.text for answer in answers[own]], question.answer)
        scored.append(
            ScoredQuestion(
                asked=tuple((len(prompt.ids), prompt.left_out) for prompt in prompts[own]),
                answers=tuple(answers[own]),
                scores=tuple(100 * score for score in scores),
            )
        )
    return scored


def prompts_each(task: str) -> int:
    """How many prompts ask one question of the task."""
    return 1 + TASKS[task].fact


def _prompts(
    tokenizer: Tokenizer, task: LEvalTask, question: LEvalQuestion, format: Format, room: int
) -> list[Prompt]:
    def write(document: str) -> list[int]:
        text = task.question.format(document=document, instruction=question.instruction)
        return format(tokenizer, PromptParts(text, task.instructions, task.lead, task.closed))

    fit = functools.partial(fit_document, tokenizer, room=room, keep=KEEPS[task.keep])
    prompts = [fit(question.document, write)]
    if task.fact:
        prompts.append(fit("", lambda document: plain(tokenizer, PromptParts(question.fact))))
    return prompts
