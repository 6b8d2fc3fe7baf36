"""L-Eval's closed-ended tasks: prompts, budget and exact match as published.

What differs from L-Eval's scripts (https://github.com/OpenLMLab/LEval, Baselines and Evaluation):
only a document whose prompt does not fit is cut, and at a token (there at a word, 250 words at a
time, whether or not the rest of the prompt fits), so that prompt and answer are within the context,
and cutting is counted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.data.benchmarks.leval import MAX_NEW_TOKENS, TASKS, Example, LEvalTask, read_examples
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.checkpoint import load_parent
from fope_lab.evaluation.leval_metrics import METRICS
from fope_lab.evaluation.prompting import (
    FORMATS,
    KEEPS,
    Asked,
    Format,
    Prompt,
    fit_document,
    plain,
)
from fope_lab.evaluation.scored_answers import (
    Answered,
    ask,
    average,
    room_for_prompts,
    rows_of,
    summary,
    write_answers,
)
from fope_lab.model import read_config

if TYPE_CHECKING:
    from fope_lab.stages import LEval
    from fope_lab.store import Attempt


def leval(
    model: Any,
    tokenizer: Tokenizer,
    task: str,
    examples: Sequence[Example],
    *,
    context_length: int,
    format: str = "plain",
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Answered]:
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
        for example in examples
        for prompt in _prompts(tokenizer, about, example, FORMATS[format], room)
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
    found = []
    for index, example in enumerate(examples):
        own = slice(index * each, (index + 1) * each)
        scores = metric([one.text for one in answers[own]], example.answer)
        found.append(
            Answered(
                asked=tuple((len(prompt.ids), prompt.left_out) for prompt in prompts[own]),
                answers=tuple(answers[own]),
                scores=tuple(100 * score for score in scores),
            )
        )
    return found


def prompts_each(task: str) -> int:
    """How many prompts a question of the task is."""
    return 1 + TASKS[task].fact


def _prompts(
    tokenizer: Tokenizer, task: LEvalTask, example: Example, format: Format, room: int
) -> list[Prompt]:
    def write(document: str) -> list[int]:
        question = task.question.format(document=document, instruction=example.instruction)
        return format(tokenizer, Asked(question, task.instructions, task.lead, task.closed))

    fit = functools.partial(fit_document, tokenizer, room=room, keep=KEEPS[task.keep])
    prompts = [fit(example.document, write)]
    if task.fact:
        prompts.append(fit("", lambda document: plain(tokenizer, Asked(example.fact))))
    return prompts


def run(stage: LEval, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Log `leval_<task>` and, of several tasks, `leval_average`, in percent, and leave all
    answers."""
    stage.check_contents()
    model, tokenizer = load_parent(parents, stage.resources)
    context_length = stage.context_length or read_config(parents["from"]).context_length
    examples = {
        task: list(islice(read_examples(stage.files, task), stage.limit)) for task in stage.tasks
    }
    total = sum(len(questions) * prompts_each(task) for task, questions in examples.items())
    done = 0
    lines: list[str] = []
    results: dict[str, dict[str, Any]] = {}
    for task, questions in examples.items():

        def progress(answers: int, before: int = done) -> None:
            attempt.progress(before + answers, total)

        answered = leval(
            model,
            tokenizer,
            task,
            questions,
            context_length=context_length,
            format=stage.format,
            batch_tokens=stage.batch_tokens,
            progress=progress,
        )
        done += len(questions) * prompts_each(task)
        lines += [one.as_json(task=task, question=index) for index, one in enumerate(answered)]
        about = TASKS[task]
        results[task] = {
            "instructions": about.instructions,
            "question": about.question,
            "lead": about.lead,
            "max_new_tokens": MAX_NEW_TOKENS,
            "metric": about.metric,
            **summary(answered),
        }
        found = results[task]
        attempt.log(0, rows_of(f"leval_{task}", found["score"], found["stderr"]))
    mean, error = average(list(results.values()))
    if len(results) > 1:
        attempt.log(0, rows_of("leval_average", mean, error))
    attempt.save_checkpoint(0, write_answers(lines))
    return {
        "dataset": stage.files.dataset,
        "revision": stage.files.revision,
        "contents": stage.contents,
        "context_length": context_length,
        "format": stage.format,
        "limit": stage.limit,
        "tasks": results,
        "average": {"score": mean, "stderr": error},
    }
