"""L-Eval's closed-ended tasks: prompts, budget and exact match as published.

What differs from L-Eval's scripts (https://github.com/OpenLMLab/LEval, Baselines and Evaluation):
only a document whose prompt does not fit is cut, and at a token (there at a word, 250 words at a
time, whether or not the rest of the prompt fits), so that prompt and answer are within the context,
and cutting is counted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

from annotated_types import MinLen

from fope_lab.config.annotations import Doc
from fope_lab.config.checks import EachOnce, KnownName
from fope_lab.data.benchmarks.task_files import TaskFiles
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.benchmark import Benchmark, DatasetName
from fope_lab.evaluation.scoring.prompting import (
    FORMATS,
    KEEPS,
    Prompt,
    PromptParts,
    fit_document,
    plain,
)
from fope_lab.papers.resonance import leval_questions as source
from fope_lab.papers.resonance.leval_metrics import METRICS
from fope_lab.papers.resonance.leval_questions import MAX_NEW_TOKENS, TASKS, LEvalQuestion
from fope_lab.stages.metric import Metric

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

    def max_new_tokens(self, task: str) -> int:
        """The same for every task."""
        return MAX_NEW_TOKENS

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
        return 1 + TASKS[task].fact

    def prompts(
        self, tokenizer: Tokenizer, task: str, question: LEvalQuestion, room: int
    ) -> list[Prompt]:
        """A document that is too long loses its end (code: its beginning).

        L-Eval puts a question about a fact as it is, whatever the format.
        """
        about, write_in_format = TASKS[task], FORMATS[self.format]

        def write(document: str) -> list[int]:
            text = about.question.format(document=document, instruction=question.instruction)
            parts = PromptParts(text, about.instructions, about.lead, about.closed)
            return write_in_format(tokenizer, parts)

        fit = functools.partial(fit_document, tokenizer, room=room, keep=KEEPS[about.keep])
        prompts = [fit(question.document, write)]
        if about.fact:
            prompts.append(fit("", lambda document: plain(tokenizer, PromptParts(question.fact))))
        return prompts

    def scores(self, task: str, question: LEvalQuestion, answers: Sequence[str]) -> Iterable[float]:
        """By L-Eval's metric of the task."""
        return METRICS[TASKS[task].metric](answers, question.answer)
