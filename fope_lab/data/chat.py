"""Encodes chats with a tokenizer's own template, and marks the tokens that the assistant wrote.

If the template marks the assistant's words (`{% generation %}`), its marks are used. Otherwise the
chat is rendered up to the start and up to the end of each of the assistant's turns, and the turn is
the difference: everything that the template puts there, including its end-of-turn token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fope_lab.data.problems import DataError

Chat = Sequence[Mapping[str, str]]
"""The messages of a chat, each with its `role` and `content`."""
Learnt = tuple[list[int], list[int]]
"""The ids of a chat, and for each id 1 if the assistant wrote it, else 0."""
ASSISTANT = "assistant"
MARK = re.compile(r"{%[-+]?\s*generation\b")


def encode_by_template(
    tokenizer: Any, encode: Callable[[list[str]], list[list[int]]], chats: Sequence[Chat]
) -> list[Learnt]:
    """Encode chats with the chat template of a tokenizer of transformers.

    `encode` returns the ids of several texts; names of special tokens in a text become these
    tokens. Raises DataError if there is no template, if it can't write a chat, or if the first part
    of a chat has other tokens than the beginning of the whole chat, so that a token's author is not
    known.
    """
    template = tokenizer.chat_template
    if not template:
        raise DataError(
            f"the tokenizer {tokenizer.name_or_path or ''} has no chat template; chats need the "
            "tokenizer of an instruction-tuned model, or a folder with a chat_template.jinja"
        )
    if MARK.search(str(template)):
        marks = {"return_dict": True, "return_assistant_tokens_mask": True}
        written = [write_chat(tokenizer, chat, tokenize=True, **marks) for chat in chats]
        return [
            (list(each["input_ids"]), [int(mask) for mask in each["assistant_masks"]])
            for each in written
        ]
    texts = [list(_beginnings(tokenizer, chat)) for chat in chats]
    ids = iter(encode([text for beginnings in texts for text in beginnings]))
    encoded = []
    for beginnings in texts:
        *borders, whole = (next(ids) for _ in beginnings)
        learnt = [0] * len(whole)
        for before, after in zip(borders[::2], borders[1::2], strict=True):
            if whole[: len(before)] != before or whole[: len(after)] != after:
                raise DataError(
                    "with this chat template, the first part of a chat has different tokens from "
                    "the beginning of the whole chat, so the assistant's words can't be told "
                    "apart: mark them with {% generation %} … {% endgeneration %} in the template "
                    f"(the chat begins: {beginnings[-1][:100]!r})"
                )
            learnt[len(before) : len(after)] = [1] * (len(after) - len(before))
        encoded.append((whole, learnt))
    return encoded


def _beginnings(tokenizer: Any, chat: Chat) -> Iterator[str]:
    """The chat up to the start and the end of each of the assistant's turns, then all of it."""
    for place, message in enumerate(chat):
        if message["role"] == ASSISTANT:
            if place > 0:
                yield write_chat(
                    tokenizer, chat[:place], tokenize=False, add_generation_prompt=True
                )
            turn = write_chat(tokenizer, chat[: place + 1], tokenize=False)
            if place == 0:  # templates can't write an empty chat
                yield turn[: max(turn.rfind(message["content"].strip()), 0)]
            yield turn
    yield write_chat(tokenizer, chat, tokenize=False)


def write_chat(tokenizer: Any, chat: Chat, **options: Any) -> Any:
    """What the tokenizer's template makes of a chat. Raises DataError if it can't."""
    from jinja2 import TemplateError

    try:
        return tokenizer.apply_chat_template([dict(message) for message in chat], **options)
    except (TemplateError, TypeError, ValueError) as error:
        roles = ", ".join(message["role"] for message in chat) or "none"
        raise DataError(
            f"the chat template can't write a chat with the roles {roles}: {error}"
        ) from error
