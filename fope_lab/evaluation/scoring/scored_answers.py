"""Questions that a model answered in its own words, with their scores, and the scores together."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.scoring.batches import Work, one_after_another
from fope_lab.evaluation.scoring.prompting import Prompt
from fope_lab.statistics.intervals import mean_and_error

if TYPE_CHECKING:
    from fope_lab.evaluation.scoring.generating import Answer

ANSWERS = "answers.jsonl"
"""The file that has a line for each question: its number in the task, what was written, scores."""


@dataclass(frozen=True)
class ScoredQuestion:
    """A question with what a model answered.

    `asked` has for each prompt its number of tokens, and how many of the text's were cut;
    `answers` is what was written after each, `scores` are in percent, one for each prompt.
    """

    asked: tuple[tuple[int, int], ...]
    answers: tuple[Answer, ...]
    scores: tuple[float, ...]

    def as_json(self, **about: Any) -> str:
        """A line of ANSWERS, which begins with the fields of `about`."""
        prompts = [
            {"tokens": tokens, "left_out": left_out, "answer": one.text, "ended": one.ended}
            for (tokens, left_out), one in zip(self.asked, self.answers, strict=True)
        ]
        content = {**about, "scores": self.scores, "prompts": prompts}
        return json.dumps(content, ensure_ascii=False)


def room_for_prompts(context_length: int, max_new_tokens: int) -> int:
    """How many tokens a prompt may have. Raises DataError if there is room for none."""
    if context_length <= max_new_tokens:
        raise DataError(
            f"context_length: found {context_length}, needs more than the {max_new_tokens} tokens "
            "that an answer may have"
        )
    return context_length - max_new_tokens


def ask(
    model: Any,
    tokenizer: Tokenizer,
    prompts: Sequence[Prompt],
    *,
    context_length: int,
    max_new_tokens: int,
    stop: Collection[int] = (),
    min_new_tokens: int = 0,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
    work: Work = one_after_another,
) -> list[Answer]:
    """The answers to prompts, each with its answer within the context; see generating.answer."""
    from fope_lab.evaluation.scoring.generating import answer

    room = room_for_prompts(context_length, max_new_tokens)
    for prompt in prompts:
        assert 0 < len(prompt.ids) <= room, (len(prompt.ids), room)
    answers = answer(
        model,
        tokenizer,
        [prompt.ids for prompt in prompts],
        max_new_tokens=max_new_tokens,
        stop=stop,
        min_new_tokens=min_new_tokens,
        batch_tokens=batch_tokens,
        progress=progress,
        work=work,
    )
    for one in answers:
        assert one.tokens == max_new_tokens or (one.ended and one.tokens < max_new_tokens), one
    return answers


def summary(answered: Sequence[ScoredQuestion]) -> dict[str, Any]:
    """The scores of several questions together, at least one.

    `score` is the mean of all scores and `stderr` its standard error, s/√n; None for one score.
    `prompts_cut` had `tokens_left_out` tokens more than fit; `answers_at_budget` were not at their
    end when the budget was.
    """
    scores = [score for one in answered for score in one.scores]
    asked = [prompt for one in answered for prompt in one.asked]
    answers = [text for one in answered for text in one.answers]
    mean, error = mean_and_error(scores)
    return {
        "questions": len(answered),
        "scores": len(scores),
        "score": mean,
        "stderr": error,
        "longest_prompt": max(tokens for tokens, _ in asked),
        "prompts_cut": sum(left_out > 0 for _, left_out in asked),
        "tokens_left_out": sum(left_out for _, left_out in asked),
        "answers_at_budget": sum(not one.ended for one in answers),
        "answers_empty": sum(not one.text.strip() for one in answers),
        "mean_answer_tokens": sum(one.tokens for one in answers) / len(answers),
    }


def average(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of several tasks' scores and its standard error, the tasks being independent."""
    errors = [task["stderr"] for task in summaries]
    mean = math.fsum(task["score"] for task in summaries) / len(summaries)
    if None in errors:
        return {"score": mean, "stderr": None}
    error = math.sqrt(math.fsum(error**2 for error in errors)) / len(summaries)
    return {"score": mean, "stderr": error}


def write_answers(lines: Iterable[str]) -> Callable[[Path], None]:
    """What writes ANSWERS into a stage's checkpoint."""

    def write(directory: Path) -> None:
        with (directory / ANSWERS).open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    return write
