"""L-Eval's closed-ended tasks: prompts, budget and exact match as published.

What differs from L-Eval's scripts (https://github.com/OpenLMLab/LEval, Baselines and Evaluation):
only a document whose prompt does not fit is cut, and at a token (there at a word, 250 words at a
time, whether or not the rest of the prompt fits), so that prompt and answer are within the context,
and cutting is counted.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import MinLen

from fope_lab.config.annotations import Doc
from fope_lab.config.checks import EachOnce, KnownName, Parsed
from fope_lab.config.options import Option, PositiveInt
from fope_lab.config.problems import ConfigError, FieldPath, Problem, collecting
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, may_write_chats
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.base import ModelEvaluation
from fope_lab.evaluation.scoring.batches import Work, one_after_another
from fope_lab.papers.resonance import leval_questions as source
from fope_lab.papers.resonance.leval_answers import (
    ALL,
    FORMATS,
    KEEPS,
    Group,
    Prompt,
    PromptParts,
    ScoredQuestion,
    ask,
    averages_by_group,
    by_group,
    fit_document,
    plain,
    room_for_prompts,
    summaries_by_group,
    write_answers,
)
from fope_lab.papers.resonance.leval_metrics import METRICS
from fope_lab.papers.resonance.leval_questions import (
    MAX_NEW_TOKENS,
    TASKS,
    LEvalQuestion,
    TaskFiles,
)
from fope_lab.stages.labels import tokenizer_label
from fope_lab.stages.metric import Metric
from fope_lab.stages.result import Measurement

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context


def _parse_dataset(value: Any, base: Path) -> str:
    """The path of a folder, made absolute; a name on the hub as it is."""
    name: str = Option(Annotated[str, MinLen(1)], MISSING).read(value)
    files = TaskFiles(name, None, "", ())
    try:
        return files.resolved(base).dataset if files.is_local else name
    except DataError as error:
        raise ConfigError(Problem((), problem.message) for problem in error.problems) from error


DatasetName = Annotated[
    str,
    Parsed(_parse_dataset, lambda: {"type": "string", "minLength": 1}),
    Doc("The dataset's name on the hub, or a folder: a path that begins with / ./ ../ or ~."),
]


@dataclass(frozen=True, kw_only=True)
class Benchmark(ModelEvaluation):
    """Questions of several tasks, which the model answers in its own words."""

    dataset: DatasetName
    revision: Annotated[
        str | None, Doc("The commit of the dataset, if it is a name on the hub.")
    ] = None
    tasks: tuple[str, ...]
    context_length: Annotated[
        PositiveInt | None,
        Doc(
            "The most tokens of prompt and answer together; the default is the length that the "
            "model was trained at."
        ),
    ] = None
    format: Annotated[
        Literal["plain", "chat", "llama2"],
        Doc(
            "How a prompt is written: as plain text, in the tokenizer's chat template, or in "
            "Llama 2's format."
        ),
    ] = "plain"
    limit: Annotated[PositiveInt | None, Doc("The most questions to ask; the default is all.")] = (
        None
    )

    @property
    @abstractmethod
    def files(self) -> TaskFiles:
        """Where the files of the tasks are."""

    @abstractmethod
    def file_names(self) -> list[str]:
        """The files of the tasks."""

    @abstractmethod
    def max_new_tokens(self, task: str) -> int:
        """How many tokens an answer to a question of the task may have."""

    @abstractmethod
    def questions(self, task: str) -> Sequence[Any]:
        """The questions of a task that the evaluation asks, in a fixed order."""

    def prompts_of_a_question(self, task: str) -> int:
        """How many prompts ask a question of the task."""
        return 1

    @abstractmethod
    def prompts(self, tokenizer: Tokenizer, task: str, question: Any, room: int) -> list[Prompt]:
        """The prompts that ask a question, each of at most `room` tokens.

        Raises DataError if one can't be cut to fit, or if the tokenizer can't write the format.
        """

    def stop(self, tokenizer: Tokenizer, task: str) -> Collection[int]:
        """The tokens that end an answer, beside the end of text; then an answer is not empty."""
        return ()

    @abstractmethod
    def scores(self, task: str, question: Any, answers: Sequence[str]) -> Iterable[float]:
        """The score of each answer to a question, from 0 to 1."""

    def answered(
        self,
        model: Any,
        tokenizer: Tokenizer,
        task: str,
        questions: Sequence[Any],
        context_length: int,
        progress: Callable[[int], None] = lambda prompts: None,
        work: Work = one_after_another,
    ) -> list[ScoredQuestion]:
        """The questions, answered by the model and scored, in their order.

        A prompt and its answer are at most `context_length` tokens. `progress` takes how many
        prompts are answered, and `work` gives the results of batches; `model` is as in
        generating.answer. Raises DataError as `prompts` does, or if there is no room for a prompt.
        """
        budget, stop = self.max_new_tokens(task), self.stop(tokenizer, task)
        room = room_for_prompts(context_length, budget)
        asked = [self.prompts(tokenizer, task, question, room) for question in questions]
        answers = iter(
            ask(
                model,
                tokenizer,
                [prompt for prompts in asked for prompt in prompts],
                context_length=context_length,
                max_new_tokens=budget,
                stop=stop,
                min_new_tokens=1 if stop else 0,
                batch_tokens=self.batch_tokens,
                progress=progress,
                work=work,
            )
        )
        answered = []
        for question, prompts in zip(questions, asked, strict=True):
            own = tuple(islice(answers, len(prompts)))
            scores = self.scores(task, question, [answer.text for answer in own])
            answered.append(
                ScoredQuestion(
                    asked=tuple((len(prompt.ids), prompt.left_out) for prompt in prompts),
                    answers=own,
                    scores=tuple(100 * score for score in scores),
                )
            )
        return answered

    def group(self, question: Any) -> Group:
        """The group that a question is averaged in."""
        return ALL

    @abstractmethod
    def metric_name(self, task: str) -> str:
        """The metric of a task, or of all tasks together if `task` is "average"."""

    @abstractmethod
    def published(self, task: str) -> dict[str, Any]:
        """What the benchmark says of a task: its prompt, its budget, its score."""

    def about(self, question: Any) -> dict[str, Any]:
        """What the file of answers says of a question."""
        return {}

    @functools.cached_property
    def contents(self) -> dict[str, str]:
        """The SHA-256 of each local file, as it was when the stage was planned."""
        return self.files.identity(self.file_names())

    def check_contents(self) -> None:
        """Raises DataError if a file is not what it was when the stage was planned."""
        planned, present = self.contents, self.files.identity(self.file_names())
        for name in planned:
            if planned[name] != present[name]:
                raise DataError(
                    f"{self.files.local_file(name)} holds something else here than where and when "
                    f"the sweep was planned (SHA-256 {planned[name]}, found {present[name]}); run "
                    "the sweep again to plan with it"
                )

    def key_replacements(self) -> Mapping[str, Any]:
        """The content of local files instead of their place; the commit of files on the hub."""
        if self.files.is_local:
            return {"dataset": self.contents}
        return {"revision": self.files.revision}

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The length of prompt and answer, where the stage gives one."""
        return None if self.context_length is None else (("context_length",), self.context_length)

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[Problem]:
        """A chat template that the tokenizer lacks."""
        if self.format == "chat" and not may_write_chats(tokenizer):
            label = tokenizer_label(tokenizer)
            message = f"the tokenizer {label} has no chat template to write prompts in"
            yield Problem(("format",), message)

    def problems(self) -> Iterable[Problem]:
        """Files that are not there, and a length that leaves no room for a prompt."""
        yield from super().problems()
        found: list[Problem] = []
        with collecting(found):
            files = self.files.resolved(Path.cwd())
            for name in self.file_names() if files.is_local else ():
                files.local_file(name)
        yield from found
        budgets = {task: self.max_new_tokens(task) for task in self.tasks}
        task, budget = max(budgets.items(), key=lambda item: item[1])
        if self.context_length is not None and self.context_length <= budget:
            needs = f"more than the {budget} tokens that an answer of {task} may have"
            yield Problem(("context_length",), f"found {self.context_length}", needs)

    def run(self, context: Context) -> dict[str, Any]:
        """Log the score of each task, and of several tasks their average; keep all answers.

        The average is that of the groups in which every task has questions.
        """
        self.check_contents()
        context_length = self.context_length or context.model_config.context_length
        asked = {task: self.questions(task) for task in self.tasks}
        prompts = {task: len(q) * self.prompts_of_a_question(task) for task, q in asked.items()}
        progress = context.progress(sum(prompts.values()))
        lines: list[str] = []
        scores: dict[str, dict[Group, dict[str, Any]]] = {}
        for task, questions in asked.items():
            part = progress.part(prompts[task])
            answered = self.answered(
                context.model,
                context.tokenizer,
                task,
                questions,
                context_length,
                part,
                context.work,
            )
            for index, (question, scored) in enumerate(zip(questions, answered, strict=True)):
                lines.append(scored.as_json(task=task, question=index, **self.about(question)))
            scores[task] = summaries_by_group(map(self.group, questions), answered)
            for group, found in scores[task].items():
                context.log(self._measured(task, group, found))
        averages = averages_by_group(list(scores.values()))
        if any(metric.short_name == self.kind for metric in self.metrics()):
            for group, mean in averages.items():
                context.log(self._measured("average", group, mean))
        context.save(write_answers(lines))
        return {
            "dataset": self.files.dataset,
            "revision": self.files.revision,
            "contents": self.contents,
            "context_length": context_length,
            **self.settings(),
            "limit": self.limit,
            "tasks": {
                task: {**self.published(task), **by_group(found)} for task, found in scores.items()
            },
        }

    def settings(self) -> dict[str, Any]:
        """Which of its options decide how prompts are written and answers scored."""
        return {"format": self.format}

    def _measured(self, task: str, group: Group, found: Mapping[str, Any]) -> Measurement:
        return Measurement(
            name=self.metric_name(task),
            x=group.x,
            value=found["score"],
            stderr=found["stderr"],
            n=found.get("scores"),
        )


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
