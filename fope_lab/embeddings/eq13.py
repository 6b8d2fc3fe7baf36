"""FoPE's Eq. 11–13 at the difference of positions, where scores are exactly relative.

The embedding (`fourier.py`) applies the series to queries and to keys separately, as the listing in
the paper does. This module has the other reading, q·k̄·h(i − j). It is a reference and not for
training: it makes a tensor of all pairs of tokens times all pairs of dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fope_lab.embeddings.base import Shape
from fope_lab.embeddings.fourier import Fourier

if TYPE_CHECKING:
    from torch import Tensor


def eq13_relative(
    definition: Fourier,
    shape: Shape,
    tensors: Mapping[str, Tensor],
    q: Tensor,
    k: Tensor,
    query_positions: Tensor,
    key_positions: Tensor,
) -> Tensor:
    """The attention logits (batch, num_heads, queries, keys), not divided by √head_dim.

    Pair m scores Re(q_m · conj(k_m) · h_m(i − j)) with the h_m of Eq. 11–13 (arXiv 2412.17739).
    `tensors` are those of the embedding, q is (batch, num_heads, queries, head_dim), k is
    (batch, num_kv_heads, keys, head_dim), and positions are (queries,) and (keys,).
    """
    distance = query_positions[:, None] - key_positions[None, :]
    cos, sin = definition.cos_sin(shape, tensors, distance.flatten())
    groups = q.shape[1] // cos.shape[-3]
    cos, sin = (
        table.unflatten(-2, distance.shape).repeat_interleave(groups, dim=-4).to(q.dtype)
        for table in (cos, sin)
    )
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    q_real, q_imaginary = q[..., :, None, :].chunk(2, dim=-1)
    k_real, k_imaginary = k[..., None, :, :].chunk(2, dim=-1)
    real = q_real * k_real + q_imaginary * k_imaginary
    imaginary = q_imaginary * k_real - q_real * k_imaginary
    scale = definition.attention_factor(shape) ** 2
    return scale * (real * cos - imaginary * sin).sum(-1)
