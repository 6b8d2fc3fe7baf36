"""Patterns of layers: which layer has which embedding, window and tensors, and that caches, packed
documents and checkpoints keep to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fope_lab.embeddings import EmbeddingError, parse_embedding, resolve_embedding
from fope_lab.model import Decoder, ModelConfig, load_model, save_model
from fope_lab.model.cache import KeyValueCache

CONFIG = ModelConfig(num_layers=5, num_heads=4, head_dim=16, num_kv_heads=2, vocab_size=90)
LENGTH = 70
PATTERNS: dict[str, list[Any]] = {
    "rope and nope": [{"embedding": "rope", "window": 9}, "rope", "nope"],
    "biases": [{"embedding": "alibi", "window": 5}, "fire", {"type": "kerple"}],
    "fope": [{"embedding": {"type": "fope", "base": 129}, "window": 33}, "nope"],
}
every_pattern = pytest.mark.parametrize("name", PATTERNS)


def layered(name: str) -> dict[str, Any]:
    return {"type": "layered", "pattern": PATTERNS[name]}


def build(name: str) -> Decoder:
    return Decoder(CONFIG, layered(name), train_length=64).eval()


def tokens() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, CONFIG.vocab_size, (2, LENGTH), generator=generator)


def test_a_pattern_is_repeated_and_equal_embeddings_share_their_tensors() -> None:
    plans = parse_embedding(layered("rope and nope")).layers(5)
    assert [plan.embedding.name for plan in plans] == ["rotary", "rotary", "nope"] + ["rotary"] * 2
    assert [plan.window for plan in plans] == [9, None, None, 9, None]
    assert [plan.tensors for plan in plans] == [0, 0, 1, 0, 0]
    model = build("rope and nope")
    assert len(model.position_embeddings) == 2
    of_biases = parse_embedding(layered("biases")).layers(6)
    assert [plan.tensors for plan in of_biases] == [0, 1, 2, 0, 3, 2], "FIRE is each layer's own"


@every_pattern
def test_it_is_described_and_read_again(name: str) -> None:
    canonical = resolve_embedding(layered(name))
    assert resolve_embedding(canonical) == canonical
    assert parse_embedding(canonical) == parse_embedding(layered(name))


@torch.no_grad()
@every_pattern
def test_a_cache_gives_what_the_whole_pass_does(name: str) -> None:
    model, cache = build(name), KeyValueCache(CONFIG.num_layers, room=8)
    whole = model(tokens()).logits
    pieces = [model(piece, cache=cache).logits for piece in tokens().split([30, 1, 1, 38], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=0, atol=2e-6)


@torch.no_grad()
@every_pattern
@pytest.mark.parametrize("pieces", [[1] * LENGTH, [30, 1, 1, 38], [3, 20, 2, 45], [LENGTH]])
def test_a_cache_keeps_no_more_than_windows_need(name: str, pieces: list[int]) -> None:
    model = build(name)
    windows = [plan.window for plan in model.plans]
    whole, cache = model(tokens()).logits, KeyValueCache(0, room=8, windows=windows)
    read = [model(piece, cache=cache).logits for piece in tokens().split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(read, 1), whole, rtol=0, atol=2e-6)
    for layer, window in zip(cache.layers, windows, strict=True):
        room = layer._kept["v"].shape[2]
        assert window is None or room <= 2 * window + max(pieces)
    if any(windows):
        with pytest.raises(RuntimeError, match="has dropped"):
            cache.forget(3)


@torch.no_grad()
@every_pattern
def test_packed_documents_are_read_as_apart(name: str) -> None:
    model, numbers = build(name), (torch.arange(LENGTH) // 25).expand(2, -1)
    packed = model(tokens(), torch.arange(LENGTH) % 25, documents=numbers).logits
    apart = [model(each).logits for each in tokens().split(25, dim=1)]
    torch.testing.assert_close(packed, torch.cat(apart, 1), rtol=0, atol=2e-6)


@torch.no_grad()
def test_a_token_behind_all_windows_changes_nothing() -> None:
    """Two layers with windows of 9 and 5 see 13 tokens in all."""
    pattern = [{"embedding": "rope", "window": 9}, {"embedding": "alibi", "window": 5}]
    config = ModelConfig(num_layers=2, num_heads=4, head_dim=16, vocab_size=90)
    model = Decoder(config, {"type": "layered", "pattern": pattern}, train_length=64).eval()
    ids = tokens()
    changed = ids.clone()
    changed[:, LENGTH - 14] += 1
    changed %= 90
    before, after = (model(each).logits[:, -1] for each in (ids, changed))
    assert torch.equal(before, after)
    changed[:, LENGTH - 13] = (ids[:, LENGTH - 13] + 1) % 90
    assert not torch.allclose(before, model(changed).logits[:, -1], atol=1e-7)


@every_pattern
def test_a_checkpoint_keeps_the_pattern(name: str, tmp_path: Path) -> None:
    model = build(name)
    save_model(tmp_path, model, tokenizer="bytes", context_length=64)
    loaded = load_model(tmp_path)
    assert loaded.embedding == model.embedding
    with torch.no_grad():
        assert torch.equal(loaded(tokens()).logits, model(tokens()).logits)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ([], "pattern: found no layer"),
        ([{"embedding": "rope", "window": 0}], "pattern[0].window"),
        ([{"embedding": "ropee"}], "did you mean 'rope'"),
        ([{"embedding": "rope", "windows": 3}], "'window'"),
        (["learned"], "learned gives positions to the tokens"),
        (["random-rope"], "gives positions to the tokens"),
        ([{"type": "layered", "pattern": ["rope"]}], "a pattern within a pattern"),
    ],
)
def test_what_is_no_pattern(pattern: list[Any], text: str) -> None:
    with pytest.raises(EmbeddingError) as error:
        Decoder(CONFIG, {"type": "layered", "pattern": pattern}, train_length=64)
    assert text in str(error.value)
