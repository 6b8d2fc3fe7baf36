"""A pattern of layers: each layer of a model attends with its own embedding and its own window.

As in Yang et al., "Rope to Nope and Back Again", arXiv 2501.18795, and in many released models.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from fope_lab.config.annotations import Doc
from fope_lab.embeddings.base import Embedding, LayerPlan, Named, Part, PatternLayer, Shape

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.embeddings.scores import Places


@dataclass(frozen=True, kw_only=True)
class Layered(Embedding, name="layered", source="Yang et al., arXiv 2501.18795, §3"):
    """Each layer has the embedding and the window of its place in a pattern, which is repeated."""

    place: ClassVar[str] = "layers"

    pattern: Annotated[
        tuple[PatternLayer, ...],
        Doc(
            "The first layers, in order: each an embedding, or {embedding: …, window: W}, in which"
            " a token attends to itself and the W − 1 tokens before it. The pattern is repeated."
        ),
    ]

    def canonical(self) -> dict[str, Any]:
        return {"type": self.name, "pattern": [layer.canonical() for layer in self.pattern]}

    def parts(self) -> Iterator[Part]:
        yield self
        for layer in self.pattern:
            yield from layer.embedding.parts()

    def layers(self, count: int) -> tuple[LayerPlan, ...]:
        """Layers of equal embeddings share their tensors, unless these are each layer's own."""
        numbers: dict[Any, int] = {}
        plans = []
        for index in range(count):
            layer = self.pattern[index % len(self.pattern)]
            own = (layer.embedding, index if layer.embedding.per_layer else None)
            number = numbers.setdefault(own, len(numbers))
            plans.append(LayerPlan(layer.embedding, layer.window, number))
        return tuple(plans)

    def counts(self, layers: int) -> Mapping[PatternLayer, int]:
        found, size = Counter[PatternLayer](), len(self.pattern)
        for place, layer in enumerate(self.pattern[:layers]):
            found[layer] += (layers - place + size - 1) // size
        return found

    @property
    def per_layer(self) -> bool:
        return any(each.per_layer for each in self._embeddings)

    @property
    def shift_invariant(self) -> bool:
        return all(each.shift_invariant for each in self._embeddings)

    @property
    def keys_cacheable(self) -> bool:
        return all(each.keys_cacheable for each in self._embeddings)

    def problems(self, shape: Shape) -> Iterator[str]:
        if not self.pattern:
            yield "pattern: found no layer"
        if self.query_scale is not None:
            yield "query_scale: write it for the embeddings of the pattern"
        for place, layer in enumerate(self.pattern):
            of, at = layer.embedding, f"pattern[{place}]"
            if isinstance(of, Layered):
                yield f"{at}: found a pattern within a pattern"
            elif of.draws_positions or type(of).embed is not Embedding.embed:
                yield f"{at}: {of.name} gives positions to the tokens, not to a layer"
            else:
                yield from (f"{at}: {problem}" for problem in of.problems(shape))

    def facts(self, shape: Shape) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for each in self._embeddings:
            found |= each.facts(shape)
        return found

    def longest_sequence(self, shape: Shape) -> int | None:
        longest = min(each.longest_sequence(shape) or math.inf for each in self._embeddings)
        return None if longest == math.inf else int(longest)

    def streams(
        self, shape: Shape, tensors: Named, hidden: Tensor, q: Tensor, k: Tensor, at: Places
    ) -> Named:
        raise TypeError("a pattern is no layer's embedding: see its `layers`")

    @property
    def _embeddings(self) -> list[Embedding]:
        return list(dict.fromkeys(layer.embedding for layer in self.pattern))
