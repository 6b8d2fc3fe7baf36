"""LongBench-E by the length of its questions: prompts, budgets and scores as published.

What differs from LongBench's script (https://github.com/THUDM/LongBench, pred.py and eval.py): a
prompt that is too long is cut at tokens, to exactly what fits, and cutting is counted; Rouge-L is
by default that of the package rouge-score (text_metrics.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.data.benchmarks.longbench import BUCKETS, TASKS, Example, LongBenchTask, read_examples
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.checkpoint import load_parent
from fope_lab.evaluation.longbench_metrics import ROUGES, Metric, classification, qa_f1
from fope_lab.evaluation.prompting import FORMATS, Asked, Prompt, cut_middle
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
    from fope_lab.stages import LongBench
    from fope_lab.store import Attempt


def longbench(
    model: Any,
    tokenizer: Tokenizer,
    task: str,
    examples: Sequence[Example],
    *,
    context_length: int,
    format: str = "plain",
    rouge: str = "rouge-score",
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Answered]:
    """A task's questions, answered and scored, in their order.

    A prompt and its answer are at most `context_length` tokens; a longer prompt loses its middle.
    `format` is a name of prompting.FORMATS; few-shot tasks are always plain, as LongBench has them.
    `rouge` is a name of text_metrics.ROUGES. For `model` and the rest see generating.answer.

    Raises DataError if there is no room for a prompt, or the tokenizer can't write the format.
    """
    about = TASKS[task]
    room = room_for_prompts(context_length, about.max_new_tokens)
    prompts = [_prompt(tokenizer, about, example, format, room) for example in examples]
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
        Answered(
            asked=((len(prompt.ids), prompt.left_out),),
            answers=(one,),
            scores=(score(about, metric, example, one.text),),
        )
        for example, prompt, one in zip(examples, prompts, answers, strict=True)
    ]


def _prompt(
    tokenizer: Tokenizer, task: LongBenchTask, example: Example, format: str, room: int
) -> Prompt:
    text = task.prompt.format(context=example.context, input=example.input)
    write = FORMATS["plain" if task.few_shot else format]
    return cut_middle(write(tokenizer, Asked(text)), room)


def metric_of(task: LongBenchTask, rouge: str) -> Metric:
    """The function that scores a task's answers."""
    return {"rouge_l": ROUGES[rouge], "qa_f1": qa_f1, "classification": classification}[task.metric]


def score(task: LongBenchTask, metric: Metric, example: Example, text: str) -> float:
    """The score of what was written, in percent, for the right answer that it comes nearest to."""
    if task.few_shot:
        text = text.lstrip("\n").split("\n")[0]
    return 100 * max(metric(text, one, example.classes) for one in example.answers)


def chosen(examples: Iterable[Example], limit: int | None) -> list[Example]:
    """The first `limit` questions of each bucket, or all."""
    seen = {bucket.name: 0 for bucket in BUCKETS}
    found = []
    for example in examples:
        seen[example.bucket.name] += 1
        if limit is None or seen[example.bucket.name] <= limit:
            found.append(example)
    return found


def by_bucket(
    examples: Sequence[Example], answered: Sequence[Answered]
) -> dict[str, dict[str, Any]]:
    """The summary of each bucket that holds a question."""
    return {
        bucket.name: summary(inside)
        for bucket in BUCKETS
        if (
            inside := [
                one
                for example, one in zip(examples, answered, strict=True)
                if example.bucket == bucket
            ]
        )
    }


def run(stage: LongBench, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Log `longbench_<task>_by_words` and `longbench_average_by_words`, in percent, with step = the
    bucket's (data/longbench.py), and leave all answers.

    A bucket's average is logged where all tasks have questions in it.
    """
    stage.check_contents()
    model, tokenizer = load_parent(parents, stage.resources)
    context_length = stage.context_length or read_config(parents["from"]).context_length
    examples = {task: chosen(read_examples(stage.files, task), stage.limit) for task in stage.tasks}
    total = sum(map(len, examples.values()))
    done = 0
    lines: list[str] = []
    results: dict[str, dict[str, Any]] = {}
    for task, questions in examples.items():

        def progress(answers: int, before: int = done) -> None:
            attempt.progress(before + answers, total)

        answered = longbench(
            model,
            tokenizer,
            task,
            questions,
            context_length=context_length,
            format=stage.format,
            rouge=stage.rouge,
            batch_tokens=stage.batch_tokens,
            progress=progress,
        )
        done += len(questions)
        lines += [
            one.as_json(task=task, question=index, words=example.words)
            for index, (example, one) in enumerate(zip(questions, answered, strict=True))
        ]
        buckets = by_bucket(questions, answered)
        for bucket in BUCKETS:
            if found := buckets.get(bucket.name):
                name = f"longbench_{task}_by_words"
                attempt.log(bucket.step, rows_of(name, found["score"], found["stderr"]))
        about = TASKS[task]
        results[task] = {
            "prompt": about.prompt,
            "format": "plain" if about.few_shot else stage.format,
            "max_new_tokens": about.max_new_tokens,
            "metric": about.metric,
            "buckets": buckets,
        }
    averages = _averages([one["buckets"] for one in results.values()])
    for bucket in BUCKETS:
        if bucket.name in averages:
            name = "longbench_average_by_words"
            attempt.log(bucket.step, rows_of(name, *averages[bucket.name]))
    attempt.save_checkpoint(0, write_answers(lines))
    return {
        "dataset": stage.files.dataset,
        "revision": stage.files.revision,
        "contents": stage.contents,
        "context_length": context_length,
        "rouge": stage.rouge,
        "limit": stage.limit,
        "tasks": results,
        "average": {
            name: {"score": mean, "stderr": error} for name, (mean, error) in averages.items()
        },
    }


def _averages(tasks: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float | None]]:
    """The average of each bucket that all tasks have, and its standard error."""
    found = {}
    for bucket in BUCKETS:
        summaries = [one[bucket.name] for one in tasks if bucket.name in one]
        if len(summaries) == len(tasks):
            found[bucket.name] = average(summaries)
    return found
