"""PaTH: between a key and its query, every token reflects, by an amount and along an axis that
follow from its hidden state.

Yang et al., "PaTH Attention: Position Encoding via Accumulating Householder Transformations",
arXiv 2505.16381, Eq. 3. Without the short convolution of the released model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from fope_lab.embeddings.base import Embedding, Named, Shape, Tensors, generator

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.embeddings.scores import Places, Scores

TOKENS = 64
"""How many tokens' reflections are multiplied at once."""


@dataclass(frozen=True, kw_only=True)
class Path(Embedding, name="path", source="Yang et al. (PaTH), arXiv 2505.16381, Eq. 3"):
    """The logit kᵀ·H·q/√head_dim, where H is the product of I − β_t·w_t·w_tᵀ over the tokens t
    after the key, up to the query. w is a unit vector, and β = 2σ(u·x + b)."""

    place: ClassVar[str] = "hidden"

    shared_layers: ClassVar[bool] = False
    decays: ClassVar[bool] = True

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        heads = shape.num_kv_heads
        return {
            "axis": (heads * shape.head_dim, shape.width),
            "amount": (heads, shape.width),
            "amount_bias": (heads,),
        }

    def products(self, shape: Shape) -> tuple[int, int]:
        return shape.num_kv_heads * (shape.head_dim + 1) * shape.width, 3 * shape.head_dim + TOKENS

    def kept(self, shape: Shape, number: int) -> int:
        """Axes before and after their norms, amounts, and the hidden state if it was narrow."""
        axes = 2 * shape.num_kv_heads * (shape.head_dim + 1)
        return 4 * (axes + (shape.width if number < 4 else 0))

    def tensors(self, shape: Shape) -> Tensors:
        """Matrices from Normal(0, 0.02), and biases of 0: at first β is about 1."""
        import torch

        rng, learned = generator("path", shape), {}
        for name, size in self.learned_sizes(shape).items():
            drawn = torch.empty(size).normal_(0.0, 0.02, generator=rng)
            learned[name] = drawn if len(size) > 1 else torch.zeros(size)
        return Tensors(learned=learned)

    def streams(
        self, shape: Shape, tensors: Named, hidden: Tensor, q: Tensor, k: Tensor, at: Places
    ) -> Named:
        """Beside keys, `axes` (batch, num_kv_heads, new, head_dim) and `amounts` (…, new), which
        are float32."""
        import torch
        import torch.nn.functional as F  # noqa: N812

        from fope_lab.embeddings.scores import wide

        with torch.autocast(hidden.device.type, enabled=False):
            x = wide(hidden)
            own = {name: each.to(x) for name, each in tensors.items()}
            axes = F.linear(x, own["axis"]).unflatten(-1, (-1, shape.head_dim)).transpose(1, 2)
            amounts = 2 * F.linear(x, own["amount"], own["amount_bias"]).sigmoid().mT
            return {"k": k, "axes": F.normalize(axes, dim=-1), "amounts": amounts}

    def scores(self, shape: Shape, tensors: Named, q: Tensor, kept: Named, at: Places) -> Scores:
        plain = super().scores(shape, tensors, q, kept, at)
        groups = shape.num_heads // shape.num_kv_heads

        def logits(scores: Scores, queries: slice, keys: slice) -> Tensor:
            import torch

            axes, amounts = scores.of["axes"], scores.of["amounts"]
            x = scores.q[:, :, queries].to(axes.dtype) / math.sqrt(shape.head_dim)
            own = queries.stop - queries.start
            # The queries' own tokens, and those before them, from the nearest on.
            before, rest = divmod(keys.stop - keys.start - own, TOKENS)
            sizes = [*([rest] if rest else []), *[TOKENS] * before, own]
            split = (
                each[:, :, keys].to(axes.dtype).repeat_interleave(groups, dim=1).split(sizes, dim=2)
                for each in (scores.k, axes, amounts)
            )
            parts: list[Tensor] = []
            for k, w, beta in reversed(list(zip(*split, strict=True))):
                # What is taken from x along each axis, the last token's first: u solves
                # (1 + upper(β·w·wᵀ))·u = β·w·x, of which a query's own begin with its own token.
                along = x @ w.mT if parts else (x @ w.mT).tril()
                system = (beta[..., None] * (w @ w.mT)).triu(1)
                taken = torch.linalg.solve_triangular(
                    system, (along * beta[..., None, :]).mT, upper=True, unitriangular=True
                ).mT
                parts.append(x @ k.mT - taken @ (k @ w.mT).triu(1).mT)
                x = x - taken @ w
            return torch.cat(parts[::-1], dim=-1)

        return replace(plain, logits=logits, of={name: kept[name] for name in ("axes", "amounts")})
