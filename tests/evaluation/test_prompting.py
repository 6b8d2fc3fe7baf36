"""Prompts: their formats, and what a long one loses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer, as_tokenizer
from fope_lab.papers.resonance.leval_answers import (
    FORMATS,
    KEEPS,
    PromptParts,
    cut_middle,
    fit_document,
)

BYTE = ByteTokenizer()
ASKED = PromptParts("Why?", instructions="Be short.", lead="\nAnswer:")
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
USER_ONLY = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ message['content'] }}"
    "{% endif %}{% endfor %}"
)


@given(st.integers(1, 40), st.integers(1, 40))
def test_the_head_and_the_tail_of_a_long_prompt_are_kept(length: int, room: int) -> None:
    ids = list(range(length))
    prompt = cut_middle(ids, room)
    kept = prompt.ids.tolist()
    assert len(kept) == min(len(ids), room)
    assert prompt.left_out == len(ids) - len(kept)
    if prompt.left_out == 0:
        assert kept == ids
    else:
        head, tail = -(-room // 2), room // 2
        assert kept[:head] == ids[:head]
        assert kept[head:] == ids[::-1][:tail][::-1]


@given(
    document=st.text(max_size=60), room=st.integers(8, 80), keep=st.sampled_from(["head", "tail"])
)
def test_only_the_document_of_a_long_prompt_is_cut(document: str, room: int, keep: str) -> None:
    def write(text: str) -> list[int]:
        return BYTE.encode(f"<<{text}>>?")

    prompt = fit_document(BYTE, document, write, room, KEEPS[keep])
    text = bytes(prompt.ids.tolist())
    assert len(text) <= room
    assert text.startswith(b"<<")
    assert text.endswith(b">>?")
    whole = document.encode()
    assert (prompt.left_out == 0) == (len(whole) + 5 <= room)
    inside = text[2:-3].decode().replace("\N{REPLACEMENT CHARACTER}", "")
    if document.isascii():
        assert prompt.left_out == max(0, len(whole) + 5 - room)
        assert inside == (
            document[: len(inside)] if keep == "head" else document[len(document) - len(inside) :]
        )


def test_a_prompt_without_its_document_may_be_too_long() -> None:
    with pytest.raises(
        DataError, match="a prompt has 5 tokens without its document, at most 4 fit"
    ):
        fit_document(BYTE, "x" * 9, lambda text: BYTE.encode(f"<<{text}>>?"), 4, KEEPS["head"])


def test_plain_and_llama2_formats() -> None:
    assert BYTE.decode(FORMATS["plain"](BYTE, ASKED)) == "Be short.Why?\nAnswer:"
    expected = "[INST]<<SYS>>\nBe short.\n<</SYS>>\n\nWhy?[/INST]\nAnswer:"
    assert BYTE.decode(FORMATS["llama2"](BYTE, ASKED)) == expected
    assert BYTE.decode(FORMATS["llama2"](BYTE, PromptParts("Why?"))) == "[INST]Why?[/INST]"
    assert BYTE.decode(FORMATS["llama2"](BYTE, PromptParts("Why?", closed=False))) == "[INST]Why?"


def chatty(make_bpe: Callable[..., Any], template: str | None) -> Any:
    tokenizer = make_bpe(bos=True)
    tokenizer.chat_template = template
    return tokenizer


def test_what_a_model_expects_before_a_text_is_there_once(make_bpe: Callable[..., Any]) -> None:
    bpe = make_bpe(bos=True)
    assert FORMATS["plain"](as_tokenizer(bpe), PromptParts("Why?")) == bpe.encode("Why?")
    assert bpe.encode("Why?")[0] == 1


@pytest.mark.parametrize("asked", [ASKED, PromptParts("The grass is green?")])
def test_the_chat_format_is_the_templates_own_prompt(
    make_bpe: Callable[..., Any], asked: PromptParts
) -> None:
    bpe = chatty(make_bpe, CHATML)
    messages = [{"role": "user", "content": asked.question}]
    if asked.instructions:
        messages.insert(0, {"role": "system", "content": asked.instructions})
    expected: Sequence[int] = bpe.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    lead = bpe.encode(asked.lead, add_special_tokens=False)
    assert FORMATS["chat"](as_tokenizer(bpe), asked) == [*expected, *lead]


@pytest.mark.parametrize(
    ("template", "message"), [(None, "no chat template"), (USER_ONLY, "leaves out what the assis")]
)
def test_a_template_that_can_write_no_chat_is_an_error(
    make_bpe: Callable[..., Any], template: str | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        FORMATS["chat"](as_tokenizer(chatty(make_bpe, template)), ASKED)
    with pytest.raises(DataError, match="no chat template"):
        FORMATS["chat"](BYTE, ASKED)
