"""Factors of queries, and so of their logits, that grow with the number of tokens that they see.

The softmax over n tokens gets flatter as n grows. A factor of the query undoes that, and leaves the
kernels of attention as they are. Torch is imported inside functions only (see base.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.named_types import NamedTypes, given_options

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.embeddings.base import Shape

QUERY_SCALE_TYPES: NamedTypes[QueryScale] = NamedTypes(
    "fope_lab.embeddings", skip=("module", "scores")
)
"""Every query scale by name."""


@dataclass(frozen=True, kw_only=True)
class QueryScale:
    """A factor of each query; a subclass gives it, and its `name` in sweep files."""

    name: ClassVar[str]
    source: ClassVar[str]
    version: ClassVar[int] = 1
    """Part of a stage's key. Raise it when the same options give other numbers than before."""
    key_name: ClassVar[str]
    """What a stage's key calls it, beside a version other than 1."""

    def __init_subclass__(cls, *, name: str, source: str) -> None:
        cls.name, cls.source = name, source
        cls.key_name = f"query scale {name}"
        QUERY_SCALE_TYPES.register(name, cls)

    def canonical(self) -> dict[str, Any]:
        """Its shortest description: options at their default are left out."""
        return {"type": self.name, **given_options(self)}

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        """The size of each tensor that one layer learns, by name."""
        return {}

    def learned(self, shape: Shape) -> Mapping[str, Tensor]:
        """The initial values of what one layer learns, by name, on the CPU."""
        return {}

    def factor(self, shape: Shape, learned: Mapping[str, Tensor], seen: Tensor) -> Tensor:
        """The factors (rows, 1 or num_heads, queries) of queries that see so many tokens, their own
        included: `seen` is float32 (rows, queries)."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Ssmax(QueryScale, name="ssmax", source="Nakanishi, arXiv 2501.19399, Eq. 3"):
    """Scalable softmax: s·ln n over n tokens; each head of each layer learns its s."""

    start: Annotated[float, Interval(gt=0), Doc("The initial s of every head.")] = 0.43

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"s": (shape.num_heads,)}

    def learned(self, shape: Shape) -> Mapping[str, Tensor]:
        import torch

        return {"s": torch.full(self.learned_sizes(shape)["s"], self.start)}

    def factor(self, shape: Shape, learned: Mapping[str, Tensor], seen: Tensor) -> Tensor:
        return learned["s"].to(seen.dtype)[:, None] * seen.log()[:, None]


@dataclass(frozen=True, kw_only=True)
class LogN(QueryScale, name="logn", source="Chiang and Cholak, arXiv 2202.12172, §5.3"):
    """max(1, ln n / ln L) over n tokens: more than 1 beyond the training length L only."""

    original_length: Annotated[
        int | None, Interval(ge=2), Doc("L in tokens (default: the training length).")
    ] = None

    def factor(self, shape: Shape, learned: Mapping[str, Tensor], seen: Tensor) -> Tensor:
        length = self.original_length or max(shape.train_length, 2)
        return (seen.log() / math.log(length)).clamp(min=1)[:, None]


@dataclass(frozen=True, kw_only=True)
class Temperature(QueryScale, name="temperature", source="Llama 4 (Meta, 2025), as released"):
    """1 + α·ln(1 + ⌊n / floor⌋) over n tokens: a step every `floor` tokens."""

    alpha: Annotated[float, Interval(gt=0), Doc("α.")] = 0.1
    floor: Annotated[int, Interval(ge=1), Doc("The tokens of a step.")] = 8192

    def factor(self, shape: Shape, learned: Mapping[str, Tensor], seen: Tensor) -> Tensor:
        return (1 + self.alpha * (seen / self.floor).floor().log1p())[:, None]
