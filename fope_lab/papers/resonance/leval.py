"""L-Eval's closed-ended tasks: prompts, budget and exact match as published.

What differs from L-Eval's scripts (https://github.com/OpenLMLab/LEval, Baselines and Evaluation):
only a document whose prompt does not fit is cut, and at a token (there at a word, 250 words at a
time, whether or not the rest of the prompt fits), so that prompt and answer are within the context,
and cutting is counted.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from annotated_types import MinLen
from numpy.typing import NDArray

from fope_lab.config.annotations import Doc
from fope_lab.config.checks import EachOnce, KnownName, Parsed
from fope_lab.config.options import Option, PositiveInt
from fope_lab.config.problems import ConfigError, Problem, collecting
from fope_lab.data.chat import ASSISTANT
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation import Measurement, Metric, PromptedEvaluation, mean_and_error
from fope_lab.papers.resonance.leval_tasks import (
    DATASET,
    MAX_NEW_TOKENS,
    TASKS,
    LEvalQuestion,
    TaskFiles,
    file_of,
    read_questions,
    scores,
)

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context
    from fope_lab.evaluation.scoring.generating import Answer

ANSWERS = "answers.jsonl"
"""The file that has a line for each question: its number in the task, what was written, scores."""


class Prompt(NamedTuple):
    """The ids (length,) that a model reads, and how many of the prompt's are not among them."""

    ids: NDArray[np.int64]
    left_out: int


class PromptParts(NamedTuple):
    """A question with instructions before it and the `lead` that begins its answer. `closed` says
    whether Llama 2's format closes the instruction before the answer."""

    question: str
    instructions: str
    lead: str
    closed: bool = True

    def plain(self, tokenizer: Tokenizer) -> list[int]:
        """Write the text as it is, after what the model expects before every text."""
        text = self.instructions + self.question + self.lead
        return [*tokenizer.prefix_ids, *tokenizer.encode(text)]

    def llama2(self, tokenizer: Tokenizer) -> list[int]:
        """Write Llama 2's format as L-Eval does (llama2-chat-test.py)."""
        system = f"[INST]<<SYS>>\n{self.instructions}\n<</SYS>>\n\n"
        closing = "[/INST]" * self.closed
        return PromptParts(self.question + closing, system, self.lead).plain(tokenizer)

    def chat(self, tokenizer: Tokenizer) -> list[int]:
        """Write the tokenizer's own chat template up to where the assistant's answer begins.

        Raises DataError if there is none, or if it can't write a system message.
        """
        messages = [
            {"role": "system", "content": self.instructions},
            {"role": "user", "content": self.question},
            # A template is asked for a whole chat, and says where the assistant begins to speak.
            {"role": ASSISTANT, "content": "A"},
        ]
        [(ids, learnt)] = tokenizer.encode_chats([messages])
        if 1 not in learnt:
            raise DataError("the tokenizer's chat template leaves out what the assistant says")
        return [*ids[: learnt.index(1)], *tokenizer.encode(self.lead)]


FORMATS: Mapping[str, Callable[[PromptParts, Tokenizer], list[int]]] = {
    "plain": PromptParts.plain,
    "chat": PromptParts.chat,
    "llama2": PromptParts.llama2,
}


def fit_document(
    tokenizer: Tokenizer,
    document: str,
    write: Callable[[str], list[int]],
    room: int,
    keep: Literal["head", "tail"],
) -> Prompt:
    """Return the prompt that `write` makes of a document, at most `room` tokens long: of a document
    that is too long only the head or the tail is kept, and nothing else is cut.

    As text and tokens don't always correspond one to one, some tokens of room may be left. Raises
    DataError if even a prompt without a document is too long.
    """
    prompt = write(document)
    if len(prompt) <= room:
        return Prompt(np.asarray(prompt, np.int64), 0)
    ids = tokenizer.encode(document)
    kept = len(ids)
    while len(prompt) > room:
        if kept == 0:
            raise DataError(
                f"a prompt has {len(prompt)} tokens without its document, at most {room} fit"
            )
        kept = max(0, kept - (len(prompt) - room))
        prompt = write(tokenizer.decode(ids[:kept] if keep == "head" else ids[len(ids) - kept :]))
    return Prompt(np.asarray(prompt, np.int64), len(ids) - kept)


class ScoredQuestion(NamedTuple):
    """A question with what a model answered: its prompts, with how many of the text's tokens were
    cut, the answer to each, and the scores in percent, one for each prompt."""

    asked: tuple[Prompt, ...]
    answers: tuple[Answer, ...]
    scores: tuple[float, ...]

    def as_json(self, **about: Any) -> str:
        """A line of ANSWERS, which begins with the fields of `about`."""
        prompts = [
            {
                "tokens": len(prompt.ids),
                "left_out": prompt.left_out,
                "answer": answer.text,
                "ended": answer.ended,
            }
            for prompt, answer in zip(self.asked, self.answers, strict=True)
        ]
        return json.dumps({**about, "scores": self.scores, "prompts": prompts}, ensure_ascii=False)


def summary(answered: Sequence[ScoredQuestion]) -> dict[str, Any]:
    """Return the scores of several questions together, at least one.

    `score` is the mean of all scores and `stderr` its standard error, s/√n; None for one score.
    `prompts_cut` had `tokens_left_out` tokens more than fit; `answers_at_budget` were not at their
    end when the budget was.
    """
    asked = [prompt for question in answered for prompt in question.asked]
    answers = [answer for question in answered for answer in question.answers]
    mean, error = mean_and_error([score for question in answered for score in question.scores])
    return {
        "questions": len(answered),
        "scores": len(answers),
        "score": mean,
        "stderr": error,
        "longest_prompt": max(len(prompt.ids) for prompt in asked),
        "prompts_cut": sum(prompt.left_out > 0 for prompt in asked),
        "tokens_left_out": sum(prompt.left_out for prompt in asked),
        "answers_at_budget": sum(not answer.ended for answer in answers),
        "answers_empty": sum(not answer.text.strip() for answer in answers),
        "mean_answer_tokens": sum(answer.tokens for answer in answers) / len(answers),
    }


def average(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of several tasks' scores and its error, the tasks being independent."""
    errors, count = [task["stderr"] for task in summaries], len(summaries)
    mean = math.fsum(task["score"] for task in summaries) / count
    known = None not in errors
    error = math.sqrt(math.fsum(error**2 for error in errors)) / count if known else None
    return {"score": mean, "stderr": error}


def _parse_dataset(value: Any, base: Path) -> str:
    """The path of a folder, made absolute; a name on the hub as it is."""
    name: str = Option(Annotated[str, MinLen(1)], MISSING).read(value)
    files = TaskFiles(name)
    try:
        return files.resolved(base).dataset if files.is_local else name
    except DataError as error:
        raise ConfigError(Problem((), problem.message) for problem in error.problems) from error


@dataclass(frozen=True, kw_only=True)
class LEval(PromptedEvaluation, kind="leval"):
    """Questions of long documents that have one right answer."""

    dataset: Annotated[
        str,
        Parsed(_parse_dataset, lambda: {"type": "string", "minLength": 1}),
        Doc("The dataset's name on the hub, or a folder: a path that begins with / ./ ../ or ~."),
    ] = DATASET
    revision: Annotated[
        str | None, Doc("The commit of the dataset, if it is a name on the hub.")
    ] = None
    tasks: Annotated[
        tuple[Annotated[str, KnownName("task", TASKS.keys)], ...],
        MinLen(1),
        EachOnce(),
        Doc("The tasks to score."),
    ] = tuple(TASKS)
    format: Annotated[
        Literal["plain", "chat", "llama2"],
        Doc(
            "How a prompt is written: as plain text, in the tokenizer's chat template, or in "
            "Llama 2's format."
        ),
    ] = "plain"  # type: ignore[assignment]
    limit: Annotated[PositiveInt | None, Doc("The most questions to ask; the default is all.")] = (
        None
    )

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """The closed-ended tasks of L-Eval."""
        return tuple(TASKS)

    def metrics(self) -> Iterable[Metric]:
        """The score of each task, and of several their average."""
        for task in (*self.tasks, *["average"] * (len(self.tasks) > 1)):
            yield Metric(
                name=f"leval_{task}",
                short_name="leval" if task == "average" else task,
                better="higher",
                unit="percent",
            )

    @property
    def files(self) -> TaskFiles:
        """Where the files of L-Eval are."""
        return TaskFiles(self.dataset, self.revision)

    @functools.cached_property
    def contents(self) -> dict[str, str]:
        """The SHA-256 of each local file, as it was when the stage was planned."""
        return self.files.identity(map(file_of, self.tasks))

    def prompts(
        self, tokenizer: Tokenizer, task: str, question: LEvalQuestion, room: int
    ) -> list[Prompt]:
        """Write the prompts that ask a question, each of at most `room` tokens. A document that is
        too long loses its end (code: its beginning).

        L-Eval puts a question about a fact as it is, whatever the format. Raises DataError if a
        prompt can't be cut to fit, or if the tokenizer can't write the format.
        """
        about = TASKS[task]

        def write(document: str) -> list[int]:
            text = about.question.format(document=document, instruction=question.instruction)
            parts = PromptParts(text, about.instructions, about.lead, about.closed)
            return FORMATS[self.format](parts, tokenizer)

        prompts = [fit_document(tokenizer, question.document, write, room, about.keep)]
        if about.fact:
            fact = [*tokenizer.prefix_ids, *tokenizer.encode(question.fact)]
            prompts.append(fit_document(tokenizer, "", lambda document: fact, room, about.keep))
        return prompts

    def answered(
        self,
        model: Any,
        tokenizer: Tokenizer,
        task: str,
        questions: Sequence[LEvalQuestion],
        context_length: int,
        **options: Any,
    ) -> list[ScoredQuestion]:
        """Return the questions, answered by the model and scored, in their order.

        A prompt and its answer are at most `context_length` tokens. `options` are those of
        generating.answer. Raises DataError as `prompts` does, or if there is no room for a prompt.
        """
        from fope_lab.evaluation.scoring.generating import answer

        room = context_length - MAX_NEW_TOKENS
        if room <= 0:
            needs = f"more than the {MAX_NEW_TOKENS} tokens that an answer may have"
            raise DataError(f"context_length: found {context_length}, needs {needs}")
        asked = [self.prompts(tokenizer, task, question, room) for question in questions]
        ids = [prompt.ids for prompts in asked for prompt in prompts]
        left = iter(answer(model, tokenizer, ids, max_new_tokens=MAX_NEW_TOKENS, **options))
        answered = []
        for question, prompts in zip(questions, asked, strict=True):
            own = tuple(islice(left, len(prompts)))
            found = scores(task, [one.text for one in own], question.answer)
            answered.append(ScoredQuestion(tuple(prompts), own, tuple(100 * one for one in found)))
        return answered

    def key_replacements(self) -> Mapping[str, Any]:
        """The content of local files instead of their place; the commit of files on the hub."""
        if self.files.is_local:
            return {"dataset": self.contents}
        return {"revision": self.files.revision}

    def problems(self) -> Iterable[Problem]:
        """Files that are not there, and a length that leaves no room for a prompt."""
        yield from super().problems()
        found: list[Problem] = []
        with collecting(found):
            files = self.files.resolved(Path.cwd())
            for task in self.tasks if files.is_local else ():
                files.local_file(file_of(task))
        yield from found
        if self.context_length is not None and self.context_length <= MAX_NEW_TOKENS:
            needs = f"more than the {MAX_NEW_TOKENS} tokens that an answer may have"
            yield Problem(("context_length",), f"found {self.context_length}", needs)

    def run(self, context: Context) -> dict[str, Any]:
        """Log the score of each task, and of several tasks their average; keep all answers."""
        present = self.files.identity(self.contents)
        for name, planned in self.contents.items():
            if planned != present[name]:
                raise DataError(
                    f"{self.files.local_file(name)} holds something else here than where and when "
                    f"the sweep was planned (SHA-256 {planned}, found {present[name]}); run "
                    "the sweep again to plan with it"
                )
        context_length = self.context_length or context.model_config.context_length
        asked = {
            task: list(islice(read_questions(self.files, task), self.limit)) for task in self.tasks
        }
        prompts = {task: len(found) * (1 + TASKS[task].fact) for task, found in asked.items()}
        scoring = context.scoring(sum(prompts.values()))
        lines: list[str] = []
        summaries: dict[str, dict[str, Any]] = {}
        for task, questions in asked.items():
            answered = self.answered(
                context.model,
                context.tokenizer,
                task,
                questions,
                context_length,
                **scoring.part(prompts[task]),
            )
            for index, scored in enumerate(answered):
                lines.append(scored.as_json(task=task, question=index))
            summaries[task] = summary(answered)
            context.log(_measured(task, summaries[task]))
        if len(self.tasks) > 1:
            context.log(_measured("average", average(list(summaries.values()))))

        def write(directory: Path) -> None:
            text = "".join(f"{line}\n" for line in lines)
            (directory / ANSWERS).write_text(text, encoding="utf-8")

        context.save(write)
        return {
            "dataset": self.files.dataset,
            "revision": self.files.revision,
            "contents": self.contents,
            "context_length": context_length,
            "format": self.format,
            "limit": self.limit,
            "tasks": {task: _recorded(task, found) for task, found in summaries.items()},
        }


def _measured(task: str, found: Mapping[str, Any]) -> Measurement:
    return Measurement(
        name=f"leval_{task}", value=found["score"], stderr=found["stderr"], n=found.get("scores")
    )


def _recorded(task: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """What L-Eval says of a task, and what we count beside its score."""
    about = TASKS[task]
    return {
        "instructions": about.instructions,
        "question": about.question,
        "lead": about.lead,
        "max_new_tokens": MAX_NEW_TOKENS,
        "metric": about.metric,
        **{name: value for name, value in found.items() if name not in ("score", "stderr")},
    }
