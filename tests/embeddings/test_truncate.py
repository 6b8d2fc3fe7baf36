"""p-RoPE against Hugging Face's proportional RoPE and its two ends."""

from __future__ import annotations

import torch
from hugging_face import rope_init
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.frequencies import rope_ladder
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.embeddings.truncate import Truncate

SIZES = {"head_dim": 64, "num_heads": 4, "train_length": 512}


def p_rope(p: float) -> PositionEmbedding:
    return build_embedding({"type": "p-rope", "p": p}, **SIZES)


@given(p=st.floats(0, 1), head_dim=st.sampled_from([2, 6, 64, 128]))
def test_p_rope_is_hugging_faces_proportional(p: float, head_dim: int) -> None:
    expected, _ = rope_init(
        "proportional", head_dim, 512, rope_theta=10_000.0, partial_rotary_factor=p
    )
    ladder = Truncate(p=p).apply(rope_ladder(head_dim, base=10_000.0, train_length=512))
    torch.testing.assert_close(torch.tensor(ladder.frequencies), expected, rtol=1e-6, atol=0)


def test_it_is_not_partial_rotary() -> None:
    """Partial rotary has the slowest frequency too: its ladder is that of a narrower head."""
    truncated = Truncate(p=0.5).apply(rope_ladder(64, base=10_000.0, train_length=512))
    partial = rope_ladder(32, base=10_000.0, train_length=512)
    assert truncated.rotating == len(partial.frequencies)
    assert truncated.frequencies[15] > 10 * partial.frequencies[15]


def test_its_ends_are_nope_and_rope() -> None:
    q, k = torch.randn(2, 1, 4, 100, 64)
    for turned, plain in zip(p_rope(0.0).rotate(q, k, torch.arange(100)), (q, k), strict=True):
        assert torch.equal(turned, plain)
    rope = build_embedding("rope", **SIZES)
    assert torch.equal(p_rope(1.0).inv_freq, rope.inv_freq)
    for ours, ropes in zip(
        p_rope(1.0).rotate(q, k, torch.arange(100)),
        rope.rotate(q, k, torch.arange(100)),
        strict=True,
    ):
        assert torch.equal(ours, ropes)
