"""FIRE: a small network maps the distance, relative to the query's position, to a bias.

Li et al., "Functional Interpolation for Relative Positions Improves Long Context Transformers",
arXiv 2310.04418.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from fope_lab.config.annotations import Doc
from fope_lab.embeddings.base import Embedding, Named, Shape, Tensors, generator

if TYPE_CHECKING:
    from torch import Tensor

HIDDEN = 32
"""The number of hidden units of the network."""
INITIAL_C = 0.1
EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class Fire(Embedding, name="fire", source="Li et al., arXiv 2310.04418"):
    """The bias of query i and key j is MLP(ψ(i − j) / ψ(max(i, L))), with ψ(x) = ln(c·x + 1).

    The network 1 → 32 → ReLU → num_heads, c and the threshold L are learned; L starts at the
    training length. The absolute values of c and L are used, so that ψ is always defined.
    """

    place: ClassVar[str] = "bias"

    biases: ClassVar[bool] = True

    shared_layers: Annotated[bool, Doc("Whether all layers share the network, c and L.")] = False

    shift_invariant = False  # a bias depends on the query's position as well as on the distance

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        """The sizes of c, of L as a multiple of the training length, and of the weights."""
        return {
            "c": (1,),
            "length_multiplier": (1,),
            "hidden_weight": (HIDDEN,),
            "hidden_bias": (HIDDEN,),
            "head_weight": (shape.num_heads, HIDDEN),
            "head_bias": (shape.num_heads,),
        }

    def tensors(self, shape: Shape) -> Tensors:
        """The initial values: c = 0.1, L = the training length, weights uniform within ±1/√inputs.

        nn.Linear initializes its weights in the same way.
        """
        import torch

        rng = generator("fire", shape)
        learned = {
            name: torch.ones(size, dtype=torch.float32, device="cpu")
            for name, size in self.learned_sizes(shape).items()
        }
        learned["c"] *= INITIAL_C
        for name, inputs in (("hidden", 1), ("head", HIDDEN)):
            bound = 1 / math.sqrt(inputs)
            for part in ("weight", "bias"):
                learned[f"{name}_{part}"].uniform_(-bound, bound, generator=rng)
        return Tensors(learned=learned)

    def bias(self, shape: Shape, tensors: Named, query: Tensor, key: Tensor) -> Tensor:
        """The network's output at each normalised distance; a key after its query has 0."""
        import torch

        learned = {
            name: tensors[name].to(torch.promote_types(tensors[name].dtype, torch.float32))
            for name in self.learned_sizes(shape)
        }
        return _network(self.normalised(shape, learned, query, key), learned)

    def normalised(self, shape: Shape, learned: Named, query: Tensor, key: Tensor) -> Tensor:
        """The distances ψ(i − j) / (ψ(max(i, L)) + 1e-6) in [0, 1], (…, queries, keys)."""
        import torch

        c = learned["c"].abs()
        threshold = learned["length_multiplier"].abs() * shape.train_length
        query = query[..., :, None]
        distance = (query - key[..., None, :]).clamp(min=0)
        reach = torch.maximum(query, threshold)
        return (c * distance).log1p() / ((c * reach).log1p() + EPSILON)


def _network(share: Tensor, learned: Named) -> Tensor:
    """Apply the network to each number: (…, queries, keys) to (…, num_heads, queries, keys)."""
    import torch

    # Hidden units come before pairs of tokens, so that heads end up before queries and keys.
    hidden = torch.addcmul(
        learned["hidden_bias"][:, None],
        learned["hidden_weight"][:, None],
        share.flatten(-2)[..., None, :],
    ).relu_()
    bias = learned["head_weight"] @ hidden + learned["head_bias"][:, None]
    return bias.unflatten(-1, share.shape[-2:])
