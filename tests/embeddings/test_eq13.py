"""FoPE's relative form against complex arithmetic, and beside the form that is trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.fourier import Fourier, eq13_relative
from fope_lab.embeddings.module import PositionEmbedding

HEAD_DIM, HEADS = 16, 4


def fope(**options: Any) -> PositionEmbedding:
    return build_embedding(
        {"type": "fope", "base": 129, **options},
        head_dim=HEAD_DIM,
        num_heads=HEADS,
        num_kv_heads=2,
        train_length=64,
    )


def relative(embedding: PositionEmbedding, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
    assert isinstance(embedding.definition, Fourier)
    return eq13_relative(embedding.definition, embedding.shape, embedding._tensors(), q, k, i, j)


def queries_and_keys() -> tuple[Tensor, Tensor]:
    return (
        torch.randn(2, HEADS, 5, HEAD_DIM, dtype=torch.float64),
        torch.randn(2, 2, 9, HEAD_DIM, dtype=torch.float64),
    )


def test_it_is_equation_13_at_the_difference_of_positions() -> None:
    """Σ_m Re(q_m · conj(k_m) · h_m(i − j)) in complex float64, one pair of tokens at a time."""
    embedding = fope(sigma=0.5)
    omegas = 129 ** (-torch.arange(HEAD_DIM // 2, dtype=torch.float64) / (HEAD_DIM // 2))
    kept = embedding.cos_coef.shape[-1]
    q, k = queries_and_keys()
    i, j = torch.arange(70, 75), torch.arange(66, 75)
    ours = relative(embedding, q, k, i, j)
    as_complex = [torch.complex(*x.chunk(2, dim=-1)) for x in (q, k.repeat_interleave(2, dim=1))]
    for head in range(HEADS):
        cos_coef, sin_coef = (
            c[head // 2].double() for c in (embedding.cos_coef, embedding.sin_coef)
        )
        for a, query in enumerate(i.tolist()):
            for b, key in enumerate(j.tolist()):
                angles = omegas[:kept] * (query - key)
                h = torch.ones(HEAD_DIM // 2, dtype=torch.complex128)
                h[:kept] = torch.complex(angles.cos() @ cos_coef, angles.sin() @ sin_coef)
                product = as_complex[0][:, head, a] * as_complex[1][:, head, b].conj() * h
                torch.testing.assert_close(
                    ours[:, head, a, b], product.real.sum(-1), rtol=0, atol=1e-5
                )


def test_its_scores_depend_on_differences_only_and_those_of_the_trained_form_do_not() -> None:
    embedding = fope(sigma=0.5)
    q, k = queries_and_keys()
    i, j = torch.arange(4, 9), torch.arange(9)

    def trained(shift: int) -> Tensor:
        turned_q, _ = embedding.rotate(q, k[:, :, :5], i + shift)
        _, turned_k = embedding.rotate(q.new_zeros(2, HEADS, 9, HEAD_DIM), k, j + shift)
        return turned_q @ turned_k.repeat_interleave(2, dim=1).transpose(-1, -2)

    torch.testing.assert_close(
        relative(embedding, q, k, i + 1000, j + 1000), relative(embedding, q, k, i, j)
    )
    assert (trained(1000) - trained(0)).abs().max() > 0.1


@pytest.mark.parametrize("spec", [{"sigma": 0.0}, {"type": "fope-yarn", "sigma": 0.0, "factor": 4}])
def test_without_noise_both_forms_are_rope_over_the_same_ladder(spec: dict[str, Any]) -> None:
    embedding = fope(**spec)
    q, k = torch.randn(1, HEADS, 9, HEAD_DIM).double(), torch.randn(1, 2, 9, HEAD_DIM).double()
    positions = torch.arange(9)
    turned_q, turned_k = embedding.rotate(q, k, positions)
    expected = turned_q @ turned_k.repeat_interleave(2, dim=1).transpose(-1, -2)
    torch.testing.assert_close(
        relative(embedding, q, k, positions, positions), expected, rtol=0, atol=1e-5
    )
