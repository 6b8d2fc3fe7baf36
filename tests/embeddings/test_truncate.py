"""p-RoPE against Hugging Face's proportional RoPE."""

from __future__ import annotations

import torch
from hugging_face import rope_init
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.embeddings.frequencies import rope_ladder
from fope_lab.embeddings.truncate import Truncate


@given(p=st.floats(0, 1), head_dim=st.sampled_from([2, 6, 64, 128]))
def test_p_rope_is_hugging_faces_proportional(p: float, head_dim: int) -> None:
    expected, _ = rope_init(
        "proportional", head_dim, 512, rope_theta=10_000.0, partial_rotary_factor=p
    )
    ladder = Truncate(p=p).apply(rope_ladder(head_dim, base=10_000.0, train_length=512))
    torch.testing.assert_close(torch.tensor(ladder.frequencies), expected, rtol=1e-6, atol=0)
