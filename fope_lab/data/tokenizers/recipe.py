"""Which tokenizer a sweep file means: one that exists by its name or path, or one to be trained.

`byte`, `symbols:parity`, `gpt-neox`, a name on the Hugging Face hub, a path, or
`{train: bpe, vocabulary: 4096, corpus: python-docs}`. Nothing here loads or downloads anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.config.problems import Problem, shown, unknown_name
from fope_lab.config.registry import Registry
from fope_lab.data.olmo_eval import GPT_NEOX, GPT_NEOX_VOCABULARY
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.symbols import PREFIX, SYMBOLS
from fope_lab.data.tokenizers.tokenizer import (
    ByteTokenizer,
    SymbolTokenizer,
    has_chat_template,
    rounded_up,
)
from fope_lab.data.tokenizers.trained import TRAINED_TOKENIZER_TYPES, TrainedTokenizer

TRAINED_TOKENIZERS: Registry[TrainedTokenizer] = Registry(
    "trained tokenizer", TRAINED_TOKENIZER_TYPES, key="train", error=DataError
)
"""Every way to train a tokenizer, by the value of `train`."""
TokenizerRecipe = str | TrainedTokenizer
VOCABULARIES = {
    "byte": ByteTokenizer.vocabulary_size,
    **{name: SymbolTokenizer(name).vocabulary_size for name in SYMBOLS},
    GPT_NEOX: GPT_NEOX_VOCABULARY,
}


def parse_tokenizer(value: Any, base: Path) -> TokenizerRecipe:
    """The tokenizer that a description stands for; `base` is as in parse_corpus.

    A path is made absolute, so that it means the same in every process. Raises DataError holding
    every problem found.
    """
    if isinstance(value, Mapping):
        return TRAINED_TOKENIZERS.parse(value, base)
    if not isinstance(value, str) or not value:
        needs = "a tokenizer's name or path, or a mapping with train, vocabulary and corpus"
        raise DataError(Problem((), f"found {shown(value)}", needs))
    if value.startswith(PREFIX) and value not in SYMBOLS:
        raise DataError(unknown_name((), "tokenizer", value, SYMBOLS))
    path = os.path.abspath(base / os.path.expanduser(value))
    return path if value not in VOCABULARIES and os.path.exists(path) else value


def tokenizer_json_schema() -> dict[str, Any]:
    """The JSON Schema of `tokenizer`."""
    named = {
        "type": "string",
        "description": "The tokenizer: byte, symbols:TASK, gpt-neox, a name on the hub, or a path.",
    }
    trained = TRAINED_TOKENIZERS.json_schema()
    return {"anyOf": [named, *trained["anyOf"]]}


def known_vocabulary(tokenizer: TokenizerRecipe) -> int | None:
    """The vocabulary that a model needs, or None where the tokenizer must be loaded to tell."""
    if isinstance(tokenizer, TrainedTokenizer):
        return rounded_up(tokenizer.vocabulary)
    return VOCABULARIES.get(tokenizer)


def may_write_chats(tokenizer: TokenizerRecipe) -> bool:
    """Whether it has a chat template, as far as can be told without loading it."""
    if isinstance(tokenizer, TrainedTokenizer) or tokenizer in VOCABULARIES:
        return False
    try:
        return has_chat_template(tokenizer)
    except DataError:
        return True  # it is not there, which is another problem
