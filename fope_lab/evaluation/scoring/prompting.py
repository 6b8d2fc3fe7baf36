"""Prompts as token ids: in which format a question is put, and what is left out of a long one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.chat import ASSISTANT
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import Tokenizer


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
