"""Short names of values, corpora and stages, as tables, tags and logs show them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fope_lab.data.corpora.base import Corpus
from fope_lab.data.corpora.hub import PRESETS
from fope_lab.data.tokenizers.recipe import TokenizerRecipe

ABSENT = "–"
"""Stands where an axis has no value."""
OWN = "own"
"""Stands where an axis of embeddings leaves a model the embedding that it has."""


def label(value: Any) -> str:
    """An axis value as a short text: {type: p-rope, p: 0.25} → 'p-rope(p=0.25)'."""
    if type(value) in (str, int, float):  # most values of a large grid
        return str(value)
    if isinstance(value, Mapping):
        inner = ",".join(f"{key}={label(item)}" for key, item in value.items() if key != "type")
        name = label(value["type"]) if "type" in value else ""
        return f"{name}({inner})" if inner or not name else name
    if isinstance(value, list | tuple):
        return "+".join(label(item) for item in value)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return str(value)


def label_parts(text: str) -> tuple[str, frozenset[str]]:
    """fope(base=129,sigma=0.10) → fope, {base=129.0, sigma=0.1}: a label's name and its options.

    Numbers are in one spelling, so that labels can be compared.
    """
    name, options = split_label(text)
    pairs = (option.partition("=") for option in options)
    return _number(name), frozenset(
        f"{key}{sign}{_number(value)}" for key, sign, value in pairs if key
    )


def split_label(text: str) -> tuple[str, list[str]]:
    """fope(base=129,sigma=0.10) → fope, [base=129, sigma=0.10]; brackets inside stay whole."""
    name, _, inner = text.removesuffix(")").partition("(")
    return name, [option for option in split_at_commas(inner) if option]


def split_at_commas(text: str) -> list[str]:
    """a=1,b(c=2,d=3) → [a=1, b(c=2,d=3)]: a text at its commas, but for those in brackets."""
    found, depth, start = [], 0, 0
    for i, mark in enumerate(f"{text},"):
        depth += (mark == "(") - (mark == ")")
        if mark == "," and depth == 0:
            found.append(text[start:i])
            start = i + 1
    return found


def _number(text: str) -> str:
    """A number in one spelling; other texts as they are."""
    try:
        number = float(text)
    except ValueError:
        return text
    return repr(number) if math.isfinite(number) else text


def corpus_label(corpus: Corpus) -> str:
    """A corpus as a short text: the name of a preset, of a dataset, or of its type."""
    for name, preset in PRESETS.items():
        if corpus == preset:
            return name
    options = corpus.canonical()
    if "dataset" in options:
        return "/".join(str(options[key]) for key in ("dataset", "config") if key in options)
    if "files" in options:
        return f"files({len(options['files'])})"
    return corpus.name


def tokenizer_label(tokenizer: TokenizerRecipe) -> str:
    """A tokenizer as a short text: its name or path, or 'bpe(4096,python-docs)'."""
    if isinstance(tokenizer, str):
        return tokenizer
    return f"{tokenizer.method}({tokenizer.vocabulary},{corpus_label(tokenizer.corpus)})"


def axis_text(path: str, value: Any) -> str:
    """The value of an axis as a short text; OWN where a model keeps its embedding."""
    return OWN if value is None and is_embedding(path) else label(value)


def axis_label(axes: Mapping[str, Any], path: str) -> str:
    """The value of an axis as a short text; ABSENT if there is none."""
    return axis_text(path, axes[path]) if path in axes else ABSENT


def is_embedding(path: str) -> bool:
    """Whether an axis selects the embedding."""
    return path.rpartition(".")[2] == "embedding"


def stage_label(stage: str, axes: Mapping[str, Any], seed: int | None) -> str:
    """A stage with what sets it apart: 'pretrain[embedding=rope,seed=0]'.

    An axis goes by its field, or by its whole path if two axes set fields of one name.
    """
    fields = [axis.split(".", 1)[1] for axis in axes]
    parts = [
        f"{field if fields.count(field) == 1 else axis}={axis_text(axis, value)}"
        for field, (axis, value) in zip(fields, axes.items(), strict=True)
    ]
    if seed is not None:
        parts.append(f"seed={seed}")
    return f"{stage}[{','.join(parts)}]" if parts else stage
