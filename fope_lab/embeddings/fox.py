"""Forgetting attention: a gate of each token lowers the logits of all tokens before it.

Lin et al., "Forgetting Transformer: Softmax Attention with a Forget Gate", arXiv 2503.02130, Eq. 5.
CABLE (Veisi et al., arXiv 2503.08067) is the same: its −softplus(w·x + b) is ln σ(−w·x − b).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from fope_lab.config.annotations import Doc
from fope_lab.embeddings.base import Embedding, Named, Shape, Tensors, generator

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.embeddings.scores import Places, Scores


@dataclass(frozen=True, kw_only=True)
class Fox(Embedding, name="fox", source="Lin et al. (FoX), arXiv 2503.02130, Eq. 5"):
    """The bias Σ ln σ(w·x_l + b) over the tokens l after the key, up to the query; w and b are each
    head's, and x is the layer's normalised input."""

    place: ClassVar[str] = "hidden"

    shared_layers: ClassVar[bool] = False
    decays: ClassVar[bool] = True

    start: Annotated[float, Doc("The initial b: the larger, the less is forgotten at first.")] = 0.0

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"gate": (shape.num_heads, shape.width), "gate_bias": (shape.num_heads,)}

    def products(self, shape: Shape) -> tuple[int, int]:
        return shape.num_heads * shape.width, 0

    def kept(self, shape: Shape, number: int) -> int:
        """Queries, keys, values and results of all heads with eight more dimensions, in place of
        those that a rotation leaves, but for the result; gates; a wide hidden state."""
        heads, width = shape.num_heads, shape.head_dim
        folded = 4 * heads * (width + 8) - (heads + 2 * shape.num_kv_heads) * width
        return number * folded + 8 * heads + (4 * shape.width if number < 4 else 0)

    def tensors(self, shape: Shape) -> Tensors:
        """`gate` from Normal(0, 0.02), and `gate_bias` of `start`."""
        import torch

        sizes, rng = self.learned_sizes(shape), generator("fox", shape)
        gate = torch.empty(sizes["gate"]).normal_(0.0, 0.02, generator=rng)
        bias = torch.full(sizes["gate_bias"], self.start)
        return Tensors(learned={"gate": gate, "gate_bias": bias})

    def streams(
        self, shape: Shape, tensors: Named, hidden: Tensor, q: Tensor, k: Tensor, at: Places
    ) -> Named:
        """Beside keys, `forgotten` (batch, num_heads, new): the logarithms of gates, float32."""
        import torch
        import torch.nn.functional as F  # noqa: N812

        from fope_lab.embeddings.scores import wide

        with torch.autocast(hidden.device.type, enabled=False):
            x = wide(hidden)
            gates = F.linear(x, tensors["gate"].to(x), tensors["gate_bias"].to(x))
            return {"k": k, "forgotten": F.logsigmoid(gates).mT}

    def scores(self, shape: Shape, tensors: Named, q: Tensor, kept: Named, at: Places) -> Scores:
        plain = super().scores(shape, tensors, q, kept, at)
        return replace(plain, key_bias=-kept["forgotten"].cumsum(dim=-1))
