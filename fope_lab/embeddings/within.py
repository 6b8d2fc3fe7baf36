"""An embedding for some layers of a model that has a pattern of layers; the others keep theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from fope_lab.config.problems import Problem
from fope_lab.embeddings.base import Embedding, EmbeddingError, Part, PatternLayer, Shape
from fope_lab.embeddings.layered import Layered

Where = Literal["full", "rotating", "all"]
WHERES: tuple[str, ...] = get_args(Where)


@dataclass(frozen=True, kw_only=True)
class Within(Embedding):
    """`embedding` in the layers without a window (full), in those that rotate, or in all of them.

    Layers keep their windows. It stands for an embedding only once it is `merged` into a model's.
    """

    name = "within"

    embedding: Embedding
    where: Where

    def canonical(self) -> dict[str, Any]:
        return {**self.embedding.canonical(), "where": self.where}

    def parts(self) -> Iterator[Part]:
        yield from self.embedding.parts()

    def problems(self, shape: Shape) -> Iterator[str]:
        yield f"where: {self.where}: there is no model yet whose other layers keep their embeddings"

    def replaced(self, own: Embedding, layers: int) -> list[PatternLayer]:
        """The layers of a model that get the embedding, as they are."""
        return [layer for layer in _layers(own, layers) if self._is_there(layer)]

    def merged(self, own: Embedding, layers: int) -> Embedding:
        """The embedding of a model with `own` and so many layers. Raises EmbeddingError if none of
        its layers is meant."""
        if not self.replaced(own, layers):
            fault = f"found {self.where}, but the model has no such layer"
            raise EmbeddingError(Problem(("embedding", "where"), fault))
        pattern = [
            replace(layer, embedding=self.embedding) if self._is_there(layer) else layer
            for layer in _layers(own, layers)
        ]
        return patterned(pattern)

    def _is_there(self, layer: PatternLayer) -> bool:
        if self.where == "full":
            return layer.window is None
        return self.where == "all" or layer.embedding.rotates


def _layers(embedding: Embedding, count: int) -> list[PatternLayer]:
    plans = embedding.layers(count)
    return [PatternLayer(embedding=plan.embedding, window=plan.window) for plan in plans]


def patterned(layers: list[PatternLayer]) -> Embedding:
    """One embedding, or the shortest pattern whose repetition the layers are."""
    size = next(
        n
        for n in range(1, len(layers) + 1)
        if all(layer == layers[place % n] for place, layer in enumerate(layers))
    )
    if size == 1 and layers[0].window is None:
        return layers[0].embedding
    return Layered(pattern=tuple(layers[:size]))
