"""Reading with a cache against reading all at once, for every embedding."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from example_embeddings import with_needs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fope_lab.embeddings.presets import PRESETS
from fope_lab.model import Decoder, ModelConfig
from fope_lab.model.cache import KeyValueCache, LayerCache

CONFIG = ModelConfig(num_layers=2, num_heads=4, head_dim=16, num_kv_heads=2, vocab_size=90)
TRAIN_LENGTH, LENGTH = 32, 41
ANEW = [
    "dynamic-ntk",
    "random-rope",
    "longrope",
    *(n for n in PRESETS if n.startswith("random-float")),
]
"""Embeddings that rotate all keys anew for each length."""
CHOSEN = {
    **{name: {"base": 129} for name in ("fope", "fope-official", "fope-yarn", "fope-cf")},
    "learned": {"num_positions": 2 * LENGTH},
}
"""A short training length leaves pairs above the floor with a small base only, and a table of
positions ends there."""
EMBEDDINGS: dict[str, dict[str, Any]] = {
    name: {**with_needs(name), **CHOSEN.get(name, {})} for name in PRESETS
}


def build(name: str, **sizes: Any) -> Decoder:
    return Decoder(
        dataclasses.replace(CONFIG, **sizes), EMBEDDINGS[name], train_length=TRAIN_LENGTH
    ).eval()


def tokens(length: int = LENGTH, batch: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, CONFIG.vocab_size, (batch, length), generator=generator)


@torch.no_grad()
def in_pieces(model: Decoder, ids: Tensor, lengths: list[int], **options: Any) -> Tensor:
    """The logits of all tokens, read a piece at a time."""
    cache = KeyValueCache(model.config.num_layers, room=8)
    pieces = []
    for piece in ids.split(lengths, dim=1):
        torch.manual_seed(9)  # what is drawn for a length does not depend on the pieces before
        pieces.append(model(piece, cache=cache, **options).logits)
    assert cache.length == ids.shape[1]
    return torch.cat(pieces, dim=1)


def test_every_embedding_of_the_registry_is_here() -> None:
    uncached = [
        name for name in EMBEDDINGS if not build(name).position_embeddings[0].keys_cacheable
    ]
    assert uncached == ANEW
    assert len(EMBEDDINGS) >= 21


@pytest.mark.parametrize("name", [name for name in EMBEDDINGS if name not in ANEW])
@pytest.mark.parametrize("lengths", [[30, *[1] * 11], [1, 1, 11, 20, 8], [LENGTH]])
def test_pieces_have_the_logits_of_the_whole(name: str, lengths: list[int]) -> None:
    model = build(name)
    with torch.no_grad():
        whole = model(tokens()).logits
    pieces = in_pieces(model, tokens(), lengths)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kv_heads", [4, 1])
@pytest.mark.parametrize("name", ["rope", "fope", "kerple", "fire"])
def test_keys_are_kept_for_each_head_of_keys(name: str, kv_heads: int) -> None:
    model = build(name, num_kv_heads=kv_heads)
    cache = KeyValueCache(CONFIG.num_layers)
    with torch.no_grad():
        model(tokens(), cache=cache)
        whole = model(tokens()).logits
    keys = cache.layers[0]._kept["k"]
    assert keys.shape == (2, kv_heads, 64, 16)
    torch.testing.assert_close(in_pieces(model, tokens(), [20, 20, 1]), whole, rtol=0, atol=2e-6)


def test_dynamic_ntk_is_exact_within_the_training_length() -> None:
    model = build("dynamic-ntk")
    ids = tokens(TRAIN_LENGTH)
    with torch.no_grad():
        whole = model(ids).logits
    torch.testing.assert_close(in_pieces(model, ids, [20, *[1] * 12]), whole, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", [n for n in ANEW if n != "random-float-sinusoidal"])
@pytest.mark.parametrize("lengths", [[30, *[1] * 11], [13, 20, 8]])
def test_keys_of_a_longer_sequence_are_rotated_anew(name: str, lengths: list[int]) -> None:
    """In the first layer, whose keys do not depend on the length: the last token's logits are
    those of one pass over all tokens (with the same positions drawn). What a position added to a
    token stays, so that random sinusoidal ones are left out."""
    model = build(name, num_layers=1)
    pieces = in_pieces(model, tokens(), lengths)
    end = 0
    for length in lengths:
        end += length
        torch.manual_seed(9)
        with torch.no_grad():
            whole = model(tokens()[:, :end]).logits
        torch.testing.assert_close(pieces[:, end - 1], whole[:, -1], rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ["rope", "fope", "sinusoidal", "alibi", "fire", "dynamic-ntk"])
def test_positions_may_be_given_piece_by_piece(name: str) -> None:
    model = build(name, num_layers=1)
    ids, cache = tokens(), KeyValueCache(1, room=8)
    both = torch.stack([torch.arange(LENGTH), 2 * torch.arange(LENGTH) + 5])
    logits = []
    with torch.no_grad():
        for start, end in ((0, 20), (20, 21), (21, LENGTH)):
            part = slice(start, end)
            logits.append(model(ids[:, part], both[:, part], cache=cache).logits)
            whole = model(ids[:, :end], both[:, :end]).logits
            torch.testing.assert_close(logits[-1][:, -1], whole[:, -1], rtol=0, atol=2e-6)


def test_one_row_of_positions_may_follow_one_of_each_sequence() -> None:
    model, ids, cache = build("rope"), tokens(), KeyValueCache(CONFIG.num_layers)
    rows = torch.arange(20) + torch.tensor([[0], [3]])
    with torch.no_grad():
        model(ids[:, :20], rows, cache=cache)
        last = model(ids[:, 20:], cache=cache).logits
        all_rows = torch.cat((rows, torch.arange(20, LENGTH).expand(2, -1)), dim=1)
        whole = model(ids, all_rows).logits
    torch.testing.assert_close(last, whole[:, 20:], rtol=0, atol=2e-6)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=9), room=st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_memory_holds_what_was_put_in_and_doubles(lengths: list[int], room: int) -> None:
    layer = LayerCache(room)
    values = torch.arange(2 * 3 * sum(lengths) * 4.0).view(2, 3, -1, 4)
    end, sizes = 0, set()
    for piece in values.split(lengths, dim=2):
        end += piece.shape[2]
        kept = layer.append({"k": piece, "positions": -piece[..., 0]}, end)
        assert torch.equal(kept["k"], values[:, :, :end])
        assert torch.equal(kept["positions"], -values[:, :, :end, 0])
        sizes.add(layer._kept["k"].shape[2])
    assert max(sizes) <= max(room, 2 * end)
    # Whatever is copied is copied into at least twice the room.
    ordered = sorted(sizes)
    assert all(after >= 2 * before for before, after in itertools.pairwise(ordered))


def test_a_pass_that_fails_leaves_the_cache_as_it_was() -> None:
    model, ids, cache = build("kerple"), tokens(), KeyValueCache(CONFIG.num_layers, room=8)
    with torch.no_grad():
        model(ids[:, :20], cache=cache)
        handle = model.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(ids[:, 30:], cache=cache)
        handle.remove()
        rest = model(ids[:, 20:], cache=cache).logits
        torch.testing.assert_close(rest, model(ids).logits[:, 20:], rtol=0, atol=2e-6)


def test_what_a_cache_cannot_hold_is_refused() -> None:
    model = build("rope")
    with pytest.raises(RuntimeError, match="keeps no gradients"):
        model(tokens(), cache=KeyValueCache(CONFIG.num_layers))
    with torch.no_grad(), pytest.raises(ValueError, match="documents with a cache"):
        model(
            tokens(), cache=KeyValueCache(CONFIG.num_layers), documents=torch.zeros_like(tokens())
        )


@pytest.mark.parametrize("how", ["inference mode", "autocast", "bfloat16"])
def test_it_works_in_every_mode_of_inference(how: str) -> None:
    model = build("kerple")
    if how == "bfloat16":
        model.bfloat16()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        whole = model(tokens()).logits.float()
        pieces = in_pieces(model, tokens(), [20, 20, 1]).float()
    tolerance = 1e-6 if how == "inference mode" else 0.02 * whole.std().item()
    assert (pieces - whole).std() < tolerance


@torch.no_grad()
@pytest.mark.parametrize("last", [5, LENGTH, LENGTH + 1])
@pytest.mark.parametrize("name", EMBEDDINGS)
def test_the_last_states_alone_are_those_of_all(name: str, last: int) -> None:
    model, ids = build(name, qk_norm="layer"), tokens()
    torch.manual_seed(9)
    expected = model.hidden(ids)[:, -last:]
    torch.manual_seed(9)
    found = model.hidden(ids, last=last)
    torch.testing.assert_close(found, expected)
    documents = (torch.arange(LENGTH) // 30).expand(2, -1)
    torch.manual_seed(9)
    expected = model.hidden(ids, documents=documents)[:, -last:]
    torch.manual_seed(9)
    found = model.hidden(ids, documents=documents, last=last)
    torch.testing.assert_close(found, expected)


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(EMBEDDINGS.keys() - ANEW))
def test_a_cache_has_all_tokens_of_which_only_the_last_states_were_asked(name: str) -> None:
    model, ids = build(name), tokens()
    cache = KeyValueCache(model.config.num_layers)
    model.hidden(ids[:, :20], cache=cache, last=1)
    found = model.hidden(ids[:, 20:], cache=cache, last=3)
    torch.testing.assert_close(found, model.hidden(ids)[:, -3:])


def test_the_last_states_alone_cost_the_last_layer_little() -> None:
    """Counted: a pass of one layer, in multiplications of its feed-forward block alone."""
    model, ids = build("rope", num_layers=1), tokens()
    rows: list[int] = []
    model.layers[0].mlp.register_forward_hook(lambda _, given, __: rows.append(given[0].shape[1]))
    model.hidden(ids)
    model.hidden(ids, last=3)
    assert rows == [LENGTH, 3]
