"""Prompts of L-Eval as token ids, and its questions as a model answered them, with their scores."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.chat import ASSISTANT
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.scoring.batches import Work, one_after_another
from fope_lab.statistics.intervals import mean_and_error

if TYPE_CHECKING:
    from fope_lab.evaluation.scoring.generating import Answer


class Prompt(NamedTuple):
    """The ids (length,) that a model reads, and how many of the prompt's are not among them."""

    ids: NDArray[np.int64]
    left_out: int


class PromptParts(NamedTuple):
    """A question with instructions before it and the `lead` that begins its answer. `closed` says
    whether Llama 2's format closes the instruction before the answer."""

    question: str
    instructions: str = ""
    lead: str = ""
    closed: bool = True


Format = Callable[[Tokenizer, PromptParts], list[int]]


def plain(tokenizer: Tokenizer, parts: PromptParts) -> list[int]:
    """The text as it is, after what the model expects before every text."""
    text = parts.instructions + parts.question + parts.lead
    return [*tokenizer.prefix_ids, *tokenizer.encode(text)]


def chat(tokenizer: Tokenizer, parts: PromptParts) -> list[int]:
    """The tokenizer's own chat template, up to where the assistant's answer begins, then the lead.

    Raises DataError if there is none, or if it can't write a system message where there are
    instructions.
    """
    messages = [{"role": "user", "content": parts.question}]
    if parts.instructions:
        messages.insert(0, {"role": "system", "content": parts.instructions})
    # A template is asked for a whole chat, and says where the assistant begins to speak.
    [(ids, learnt)] = tokenizer.encode_chats([[*messages, {"role": ASSISTANT, "content": "A"}]])
    if 1 not in learnt:
        raise DataError("the tokenizer's chat template leaves out what the assistant says")
    return [*ids[: learnt.index(1)], *tokenizer.encode(parts.lead)]


def llama2(tokenizer: Tokenizer, parts: PromptParts) -> list[int]:
    """Llama 2's format as LongBench (pred.py) and L-Eval (llama2-chat-test.py) write it."""
    system = f"<<SYS>>\n{parts.instructions}\n<</SYS>>\n\n" if parts.instructions else ""
    question = f"[INST]{system}{parts.question}" + "[/INST]" * parts.closed
    return plain(tokenizer, PromptParts(question, lead=parts.lead))


FORMATS: Mapping[str, Format] = {"plain": plain, "chat": chat, "llama2": llama2}


def cut_middle(ids: Sequence[int], room: int) -> Prompt:
    """At most `room` ids: the first and the last half, the first one longer if `room` is odd.

    Bai et al., arXiv 2308.14508, §4.1; their script cuts the same way, to an even number of tokens,
    but makes text of the halves and tokens of the text once more.
    """
    if len(ids) <= room:
        return Prompt(np.asarray(ids, np.int64), 0)
    tail = room // 2
    kept = [*ids[: room - tail], *ids[len(ids) - tail :]]
    return Prompt(np.asarray(kept, np.int64), len(ids) - room)


def fit_head(ids: Sequence[int], size: int) -> Sequence[int]:
    """Keep the first `size` ids of a prompt."""
    return ids[:size]


def fit_tail(ids: Sequence[int], size: int) -> Sequence[int]:
    """Keep the last `size` ids of a prompt."""
    return ids[len(ids) - size :]


KEEPS: Mapping[str, Callable[[Sequence[int], int], Sequence[int]]] = {
    "head": fit_head,
    "tail": fit_tail,
}


def fit_document(
    tokenizer: Tokenizer,
    document: str,
    write: Callable[[str], list[int]],
    room: int,
    keep: Callable[[Sequence[int], int], Sequence[int]],
) -> Prompt:
    """The prompt that `write` makes of a document, at most `room` tokens long: a document that is
    too long loses what `keep` does not keep of its tokens, and nothing else does.

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
        prompt = write(tokenizer.decode(keep(ids, kept)))
    return Prompt(np.asarray(prompt, np.int64), len(ids) - kept)


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


class Group(NamedTuple):
    """Questions whose scores are averaged: `name` and the x of the metric, None if all are one."""

    name: str
    x: int | None


ALL = Group("all", None)
MEASURED = ("score", "stderr")
"""The fields of a summary that are logged as a metric."""


def summaries_by_group(
    groups: Iterable[Group], answered: Sequence[ScoredQuestion]
) -> dict[Group, dict[str, Any]]:
    """The summary of each group, by rising x; `groups` has the group of each question."""
    members: dict[Group, list[ScoredQuestion]] = {}
    for group, scored in zip(groups, answered, strict=True):
        members.setdefault(group, []).append(scored)
    return {group: summary(members[group]) for group in sorted(members, key=lambda g: g.x or 0)}


def averages_by_group(
    tasks: Sequence[Mapping[Group, Mapping[str, Any]]],
) -> dict[Group, dict[str, Any]]:
    """The mean of all tasks' scores and its standard error, in each group that every task has."""
    shared = [group for group in tasks[0] if all(group in task for task in tasks)]
    return {group: average([task[group] for task in tasks]) for group in shared}


def by_group(scores: Mapping[Group, dict[str, Any]]) -> dict[str, Any]:
    """What a result records beside the scores: by the group's name, or as such if all are one."""
    counts = {
        group.name: {name: value for name, value in found.items() if name not in MEASURED}
        for group, found in scores.items()
    }
    return counts[ALL.name] if set(scores) == {ALL} else {"buckets": counts}
