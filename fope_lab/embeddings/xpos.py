"""xPos: RoPE whose pairs also decay with distance, the quicker the faster they rotate.

Sun et al., "A Length-Extrapolatable Transformer", arXiv 2212.10554, Eq. 13 and Alg. 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import Named, Shape
from fope_lab.embeddings.rotary import Rotary

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.embeddings.scores import Places, Scores


@dataclass(frozen=True, kw_only=True)
class XPos(Rotary, name="xpos", source="Sun et al. (xPos), arXiv 2212.10554, Eq. 13"):
    """RoPE, with queries times ζ^(m/scale) and keys times ζ^(−n/scale) at positions m and n, where
    pair i has ζ_i = (2i/d + γ)/(1 + γ)."""

    gamma: Annotated[float, Interval(gt=0), Doc("γ: the larger, the less decays.")] = 0.4
    scale: Annotated[float, Interval(gt=0), Doc("The tokens in which a pair decays by ζ.")] = 512.0

    shift_invariant = True
    keys_cacheable = True  # before rotation: see `streams`

    def problems(self, shape: Shape) -> Iterator[str]:
        yield from super().problems(shape)
        if self.fraction != 1:
            yield "fraction: the decay of xpos is of whole heads"
        if any(transform.dynamic for transform in self.transforms):
            yield "a transform that changes with the length of the sequence is not known with xpos"

    def streams(
        self, shape: Shape, tensors: Named, hidden: Tensor, q: Tensor, k: Tensor, at: Places
    ) -> Named:
        """Keys as they are: the factors of distant tokens alone would leave the range of floats."""
        return {"k": k}

    def scores(self, shape: Shape, tensors: Named, q: Tensor, kept: Named, at: Places) -> Scores:
        from fope_lab.embeddings.scores import Scores, rotated, wide

        positions, groups = at.positions, shape.num_heads // shape.num_kv_heads
        offset = positions.shape[-1] - q.shape[2]

        def turned(x: Tensor, positions: Tensor, power: Tensor) -> Tensor:
            import torch

            pair = torch.arange(shape.head_dim // 2, device=x.device, dtype=torch.float32)
            decay = ((2 * pair / shape.head_dim + self.gamma) / (1 + self.gamma)).log()
            factor = (power[..., None, :, None] / self.scale * decay.repeat(2)).exp()
            return rotated(wide(x), self.turn(shape, tensors, positions)) * factor

        def logits(scores: Scores, queries: slice, keys: slice) -> Tensor:
            own = positions[..., offset + queries.start : offset + queries.stop]
            before, start = positions[..., keys], own[..., :1]
            # From the first of the queries: no key that they see has a factor much above 1.
            x = turned(scores.q[:, :, queries], own, own - start)
            y = turned(scores.k[:, :, keys], before, (start - before).clamp(min=-50 * self.scale))
            return x @ y.repeat_interleave(groups, dim=1).mT / math.sqrt(shape.head_dim)

        return Scores(q, kept["k"], logits=logits)
