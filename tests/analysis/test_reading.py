"""Queries, keys and attention against what the model uses; rows of a text."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fope_lab.analysis import Subject
from fope_lab.analysis.reading import (
    attention_patterns,
    attention_weights,
    embedding_of,
    passages,
    record,
    scores_of,
    words,
)
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.model import Decoder, ModelConfig
from fope_lab.model.seen import Seen

CONFIG = ModelConfig(num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8, vocab_size=50)
FOPE = {"type": "fope", "base": 129}
EMBEDDINGS: dict[str, Any] = {
    "rope": "rope",
    "p-rope": "p-rope",
    "fope": FOPE,
    "yarn": {"type": "yarn", "factor": 4},
    "alibi": "alibi",
    "kerple": "kerple",
    "fire": "fire",
    "nope": "nope",
    "sinusoidal": "sinusoidal",
    "partial": "partial",
    "t5": "t5",
    "sink": "sink",
    "fox": "fox",
    "path": "path",
    "selective-rope": "selective-rope",
    "repo": "repo",
    "stick-breaking": "stick-breaking",
    "cope-contextual": "cope-contextual",
    "self-extend": {"type": "self-extend", "window": 5, "group": 4},
    "dca": {"type": "dca", "chunk": 6},
    "rnope-swa": {"type": "rnope-swa", "window": 5},
    "ssmax": {"type": "fope", "base": 129, "query_scale": "ssmax"},
    "temperature": {"type": "alibi", "query_scale": {"type": "temperature", "floor": 4}},
}


def model_of(embedding: Any = "rope", **options: Any) -> Decoder:
    model = Decoder(dataclasses.replace(CONFIG, **options), embedding, train_length=32).eval()
    generator = torch.Generator().manual_seed(1)
    for weight in model.parameters():  # larger than at the start, so that every layer matters
        weight.data = torch.randn(weight.shape, generator=generator) * 0.3
    return model


def text(batch: int = 2, length: int = 20) -> Tensor:
    return torch.randint(0, 50, (batch, length), generator=torch.Generator().manual_seed(0))


def test_one_layer_is_held_at_a_time_and_the_model_is_left_as_it_was() -> None:
    model = model_of()
    before = model.hidden(text())
    running = record(model, text())
    _, q, k, *_ = next(running)
    last = weakref.ref(q)
    assert not torch.is_inference_mode_enabled()  # between layers the caller's modes are in force
    del q, k
    next(running)
    assert last() is None
    del running  # stopped half-way
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.equal(model.hidden(text()), before)


@pytest.mark.parametrize(
    "options",
    [
        *({"num_kv_heads": heads} for heads in (1, 2, 4)),
        {"qk_norm": "layer"},
        {"scale_embeddings": True},
    ],
)
@pytest.mark.parametrize("name", EMBEDDINGS)
def test_the_weights_give_what_attention_gives(name: str, options: dict[str, Any]) -> None:
    """So queries and keys are those that attention gets when the model runs."""
    model = model_of(EMBEDDINGS[name], **options)
    kv_heads = model.config.num_kv_heads
    values: list[Tensor] = []
    outputs: list[Tensor] = []
    for layer in model.layers:
        layer.self_attn.v_proj.register_forward_hook(lambda *call: values.append(call[2]))
        layer.self_attn.register_forward_hook(lambda *call: outputs.append(call[2]))
    found = list(attention_patterns(model, text()))
    assert [layer for layer, _ in found] == [0, 1, 2]
    for layer, weights in found:
        v = values[layer].unflatten(-1, (kv_heads, 8)).transpose(1, 2)
        mixed = weights @ v.repeat_interleave(4 // kv_heads, dim=1)
        expected = model.layers[layer].self_attn.o_proj(mixed.transpose(1, 2).flatten(2))
        torch.testing.assert_close(expected, outputs[layer], rtol=0, atol=2e-5)
        assert outputs[layer].std() > 0.1


def test_half_precision_models_have_weights_in_single_precision() -> None:
    model = model_of("rope").bfloat16()
    for _, weights in attention_patterns(model, text()):
        assert weights.dtype == torch.float32
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 20))


def test_positions_that_are_drawn_are_the_same_for_the_weights_and_the_model() -> None:
    """In the last layer, whose queries already depend on the positions."""
    model = model_of("random-rope")
    torch.manual_seed(5)
    *_, (_, found) = attention_patterns(model, text())
    torch.manual_seed(5)
    *_, (_, q, k, _, positions, *_) = record(model, text())
    torch.manual_seed(5)
    assert torch.equal(positions, embedding_of(model, 0).positions(20))
    scores = scores_of(embedding_of(model, 2), q, k, positions, q)
    expected = attention_weights(scores, Seen.of(20, 20))
    torch.testing.assert_close(found, expected)


class Prefixed(ByteTokenizer):
    """Bytes of which every text begins with two tokens, as some pretrained models want."""

    prefix_ids = (258, 257)


def test_rows_are_the_text_in_its_order() -> None:
    rows = passages(Subject(model_of(vocab_size=272), ByteTokenizer(), np.arange(12)), 3, 4)
    assert rows.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_every_row_begins_as_the_model_is_used_to() -> None:
    rows = passages(Subject(model_of(vocab_size=272), Prefixed(), np.arange(12)), 3, 4)
    assert rows.tolist() == [[258, 257, 0, 1], [258, 257, 4, 5], [258, 257, 8, 9]]


def test_errors() -> None:
    with pytest.raises(DataError, match="length: found 2, needs more than the 2 tokens"):
        passages(Subject(model_of(vocab_size=272), Prefixed(), np.arange(12)), 3, 2)
    with pytest.raises(DataError, match="token 300, but the model's vocabulary has 272 tokens"):
        passages(Subject(model_of(vocab_size=272), ByteTokenizer(), np.full(12, 300)), 3, 4)


def test_words_can_be_drawn() -> None:
    tokenizer = ByteTokenizer()
    ids = np.array([*tokenizer.encode("a b\n\0"), tokenizer.eos_id])
    assert words(Subject(model_of(vocab_size=272), tokenizer, ids), ids) == [
        "a",
        "␣",
        "b",
        "⏎",
        "·",
        "",
    ]
