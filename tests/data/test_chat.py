"""Chats: the tokenizer's own template, and a loss on what the assistant wrote and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.packing import PackedCorpus, write_packed
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer, as_tokenizer, load_tokenizer

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = (
    "{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{%- if message['role'] == 'assistant' %}{%- generation %}"
    "{{ message['content'] + '<|im_end|>\n' }}{%- endgeneration %}"
    "{%- else %}{{ message['content'] + '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
)
"""The same, with the assistant's words marked for transformers."""
CHAT = [
    {"role": "system", "content": "The grass is green."},
    {"role": "user", "content": "What is the pass key?"},
    {"role": "assistant", "content": "The pass key is 12345."},
    {"role": "user", "content": "Remember it."},
    {"role": "assistant", "content": "It is 12345"},
]
MakeBpe = Callable[..., Any]


@pytest.fixture(scope="module")
def make_chatty(make_bpe: MakeBpe) -> Callable[[str | None], Any]:
    """A tokenizer of transformers with a template."""

    def make(template: str | None) -> Any:
        tokenizer = make_bpe()
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
        tokenizer.chat_template = template
        return tokenizer

    return make


def learnt_texts(tokenizer: Any, ids: list[int], learnt: list[int]) -> list[str]:
    """The runs of tokens that are to be learnt, as text."""
    runs: list[list[int]] = []
    for token, this, before in zip(ids, learnt, [0, *learnt], strict=False):
        if this:
            if not before:
                runs.append([])
            runs[-1].append(token)
    return [tokenizer.decode(run) for run in runs]


@pytest.mark.parametrize("template", [CHATML, MARKED])
def test_the_assistants_turns_are_to_be_learnt(
    make_chatty: Callable[[str | None], Any], template: str
) -> None:
    bpe = make_chatty(template)
    [(ids, learnt)] = as_tokenizer(bpe).encode_chats([CHAT])
    assert ids == bpe.apply_chat_template(CHAT, tokenize=True, return_dict=True)["input_ids"]
    assert bpe.decode(ids).startswith("<|im_start|>system\nThe grass")
    assert learnt_texts(bpe, ids, learnt) == [
        "The pass key is 12345.<|im_end|>\n",
        "It is 12345<|im_end|>\n",
    ]


ROLES = st.sampled_from(["user", "assistant", "tool"])
CHATS = st.lists(
    st.fixed_dictionaries({"role": ROLES, "content": st.text("sky 1\n<|é", max_size=12)}),
    min_size=1,
    max_size=5,
).map(lambda chat: [{"role": "user", "content": "1"}, *chat])


@settings(deadline=None, max_examples=60)
@given(st.lists(CHATS, min_size=1, max_size=4))
def test_beginnings_find_what_marks_say(
    make_chatty: Callable[[str | None], Any], chats: list[Any]
) -> None:
    """transformers' own masks, from the same template with marks, are the reference."""
    found = as_tokenizer(make_chatty(CHATML)).encode_chats(chats)
    assert found == as_tokenizer(make_chatty(MARKED)).encode_chats(chats)


WRITES_ONLY_THE_LAST = "{{ messages[-1]['content'] }}"
MERGES = (
    "{% for one in messages %}{{ one.role }}: {{ one.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
"""A space before the answer, which is one token with the answer's first word."""
NEEDS_A_USER = "{{ raise_exception('needs a user') }}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "has no chat template; chats need the tokenizer of an instruction-tuned model"),
        (WRITES_ONLY_THE_LAST, "the first part of a chat has different tokens from"),
        (MERGES, "the first part of a chat has different tokens from"),
        (NEEDS_A_USER, r"can't write a chat with the roles system, user: needs a user"),
    ],
)
def test_a_template_that_does_not_do_is_one_clear_error(
    make_chatty: Callable[[str | None], Any], template: str | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        as_tokenizer(make_chatty(template)).encode_chats([CHAT])
    with pytest.raises(DataError, match="the tokenizer byte has no chat template"):
        ByteTokenizer().encode_chats([CHAT])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset of chats, in one of which the assistant says nothing."""
    rows = [{"messages": [*CHAT[:3], {"role": "user", "content": f"{i}"}]} for i in range(12)]
    rows[3]["messages"] = CHAT[:2]
    path = tmp_path / "chats"
    path.mkdir()
    (path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_prepared_chats_say_what_is_to_be_learnt(
    folder: Path, tmp_path: Path, make_chatty: Callable[[str | None], Any]
) -> None:
    corpus = parse_corpus({"type": "dataset-chat", "dataset": "./chats"}, tmp_path)
    assert corpus.kind == "chats"
    assert parse_corpus(corpus.canonical(), Path()) == corpus
    make_chatty(CHATML).save_pretrained(tmp_path / "tokenizer")
    tokenizer = load_tokenizer(str(tmp_path / "tokenizer"))
    contents = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        out.mkdir()
        write_packed(out, corpus, tokenizer, "train", processes=processes)
        contents.append([(out / f"{name}-00000.bin").read_bytes() for name in ("tokens", "loss")])
    assert contents[0] == contents[1]
    packed = PackedCorpus(tmp_path / "1", {})
    assert packed.info["kind"] == "chats"
    assert packed.info["documents"] == 10  # of 12, one is held out and one says nothing
    assert packed.loss is not None
    first = slice(0, int(packed.starts[1]))
    ids, learnt = packed.tokens[first].tolist(), packed.loss[first].tolist()
    assert learnt_texts(tokenizer, ids, learnt) == ["The pass key is 12345.<|im_end|>\n"]


@pytest.mark.parametrize(
    "messages",
    ["text", [{"role": "user"}], [{"role": "user", "content": ["parts"]}], ["text"], None],
)
def test_what_are_no_messages_is_one_clear_error(
    folder: Path, tmp_path: Path, messages: Any
) -> None:
    (folder / "train.jsonl").write_text(json.dumps({"messages": messages, "x": 1}) + "\n")
    corpus = parse_corpus({"type": "dataset-chat", "dataset": str(folder)}, tmp_path)
    with pytest.raises(DataError, match="needs a list of messages with a role and a content"):
        list(corpus.documents("train"))


def test_a_template_is_part_of_a_tokenizer(
    tmp_path: Path, make_chatty: Callable[[str | None], Any]
) -> None:
    identities = []
    for name, template in (("one", CHATML), ("other", MARKED)):
        make_chatty(template).save_pretrained(tmp_path / name)
        identities.append(load_tokenizer(str(tmp_path / name)).identity())
    assert identities[0] != identities[1]


@pytest.mark.parametrize(
    "tag", ["{%generation", "{%-  generation", "{%+ generation", "{%\ngeneration"]
)
def test_every_spelling_of_a_mark_is_believed(
    make_chatty: Callable[[str | None], Any], tag: str
) -> None:
    """The header is inside the turn's own branch, so that without the mark it would be learnt."""
    template = MARKED.replace("{%- generation", f"tools\n{tag}")
    bpe = make_chatty(template)
    [(ids, learnt)] = as_tokenizer(bpe).encode_chats([CHAT[:3]])
    assert "tools" in bpe.decode(ids)
    assert learnt_texts(bpe, ids, learnt) == ["The pass key is 12345.<|im_end|>\n"]


def test_the_assistant_may_speak_first(make_chatty: Callable[[str | None], Any]) -> None:
    bpe = make_chatty(CHATML)
    greeting = [{"role": "assistant", "content": "The grass is green."}, *CHAT[1:3]]
    [(ids, learnt)] = as_tokenizer(bpe).encode_chats([greeting])
    assert learnt_texts(bpe, ids, learnt) == [
        "The grass is green.<|im_end|>\n",
        "The pass key is 12345.<|im_end|>\n",
    ]


def test_a_corpus_of_which_nothing_is_to_be_learnt_is_an_error(
    make_chatty: Callable[[str | None], Any], tmp_path: Path
) -> None:
    never = MARKED.replace("== 'assistant'", "== 'nobody'")
    tokenizer = as_tokenizer(make_chatty(never))
    (tmp_path / "chats").mkdir()
    rows = [json.dumps({"messages": CHAT})] * 12
    (tmp_path / "chats" / "train.jsonl").write_text("\n".join(rows))
    corpus = parse_corpus({"type": "dataset-chat", "dataset": "./chats"}, tmp_path)
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="has no token to learn"):
        write_packed(tmp_path / "out", corpus, tokenizer, "train")
