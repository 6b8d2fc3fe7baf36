"""The base classes of embeddings: options and maths, without state.

An embedding is one file: a subclass of `Embedding` whose fields are its options and whose methods
are pure functions of tensors. Defining the class registers it under its `name`, and every module of
this package is found, so a new file needs no other change. Such files import torch inside functions
only, because a sweep is planned from the options without torch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from fope_lab.config.annotations import Doc
from fope_lab.config.named_types import NamedTypes, given_options
from fope_lab.config.problems import ConfigError, FieldPath, Problem, name_list
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES, FrequencyTransform
from fope_lab.embeddings.query_scales import QueryScale

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fope_lab.embeddings.frequencies import HfRope
    from fope_lab.embeddings.scores import Places, Scores


class EmbeddingError(ConfigError):
    """An embedding that cannot be built; `problems` holds everything that is wrong with it."""


LARGEST = {
    "head_dim": 2**16,
    "num_heads": 2**16,
    "num_kv_heads": 2**16,
    "hidden_size": 2**32,
    "train_length": 2**40,
}
"""Upper limits of sizes; a larger number is a typing error."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of the model that an embedding is built for.

    `train_length` is the original training length in tokens, `layer` the index of the decoder layer
    and `seed` the seed of the stage. Only embeddings that draw random numbers read the last two.
    `hidden_size` are the dimensions of the hidden state, num_heads × head_dim by default (`width`).
    """

    head_dim: int
    num_heads: int
    num_kv_heads: int
    train_length: int
    layer: int = 0
    seed: int = 0
    hidden_size: int | None = None

    @property
    def width(self) -> int:
        """The dimensions of the hidden state."""
        return self.hidden_size or self.num_heads * self.head_dim

    def problems(self) -> Iterator[str]:
        """Yield a sentence for every size that no model can have."""
        for name, most in LARGEST.items():
            size = getattr(self, name)
            if name == "hidden_size" and size is None:
                continue
            if not (isinstance(size, int) and 1 <= size <= most):
                yield f"{name}: found {size!r}, needs a whole number from 1 to {most:,}"


@dataclass(frozen=True, kw_only=True)
class Tensors:
    """The initial tensors of an embedding, by their attribute name in the module.

    `constants` follow from the options and are computed again on loading. `drawn` are random and
    frozen, and a checkpoint stores them. `learned` are parameters.
    """

    constants: Mapping[str, Tensor] = field(default_factory=dict)
    drawn: Mapping[str, Tensor] = field(default_factory=dict)
    learned: Mapping[str, Tensor] = field(default_factory=dict)


PLACES = {
    "nowhere": "Nothing acts by position",
    "tokens": "Added to the tokens",
    "rotation": "Rotation of queries and keys",
    "positions": "The positions that tokens have",
    "bias": "A bias of distance",
    "hidden": "What follows from hidden states",
    "attention": "How logits become weights",
    "layers": "Patterns of layers",
}
"""The places where position acts, in the order of the catalogue."""
Named = Mapping[str, "Tensor"]
"""Tensors by their attribute name in the module."""
EMBEDDING_TYPES: NamedTypes[Embedding] = NamedTypes(
    "fope_lab.embeddings", skip=("module", "scores")
)
"""Every embedding by name. Planning finds them, so what imports torch is skipped."""


@dataclass(frozen=True)
class LayerPlan:
    """What a layer attends with. With a `window` W, a token sees itself and the W − 1 tokens before
    it. Layers with the same number of `tensors` share them."""

    embedding: Embedding
    window: int | None
    tensors: int


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """A position embedding that does nothing; a subclass replaces the methods of its mechanism.

    A subclass gives its `name` in sweep files and its `source`, the paper and equation. A subclass
    without a name is a base for others and is not registered. The class attributes `rotates` and
    `biases` say whether it implements `cos_sin` and `bias`. Methods get the `shape` that the
    tensors were made for. Those without tensors are torch-free.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    rotates: ClassVar[bool] = False
    biases: ClassVar[bool] = False
    version: ClassVar[int] = 1
    """Part of a stage's key. Raise it when the same options give other numbers than before."""
    key_name: ClassVar[str]
    """What a stage's key calls it, beside a version other than 1."""
    draws_positions: ClassVar[bool] = False
    """Whether every call of `positions` draws new random positions."""
    decays: ClassVar[bool] = False
    """Whether weight decay applies to the learned parameters, as to the model's matrices. A table
    decays; a slope or a coefficient does not, since 0 is not neutral for it."""
    place: ClassVar[str] = "attention"
    """Where position acts, by which the catalogue groups (PLACES)."""
    biases_by_distance: ClassVar[bool] = False
    """Whether the bias depends on the distance alone."""
    cos_sin_per_head: ClassVar[bool] = False
    """Whether the results of `cos_sin` have a dimension of key-value heads."""

    query_scale: Annotated[
        QueryScale | None,
        Doc("A factor of each query, by how many tokens it sees: ssmax, logn or temperature."),
    ] = None

    def __init_subclass__(cls, *, name: str | None = None, source: str = "") -> None:
        if name is not None:
            cls.name, cls.source = name, source
            cls.key_name = f"embedding {name}"
            EMBEDDING_TYPES.register(name, cls)

    def canonical(self) -> dict[str, Any]:
        """The shortest composition that describes it: options at their default are left out."""
        return {"type": self.name, **given_options(self)}

    @property
    def mechanism(self) -> str:
        """What weights are trained for. One that is made to take the place of another without
        training says that one's."""
        return self.name

    @property
    def per_layer(self) -> bool:
        """Whether each layer has its own tensors: its option `shared_layers` is false."""
        return not getattr(self, "shared_layers", True)

    @property
    def shift_invariant(self) -> bool:
        """Whether attention scores depend only on the differences of positions."""
        return True

    @property
    def keys_cacheable(self) -> bool:
        """Whether a rotated key stays correct while the sequence grows.

        If not, a cache holds the keys before rotation, and each step rotates all of them for the
        current length of the sequence.
        """
        return True

    def problems(self, shape: Shape) -> Iterator[str]:
        """Yield a sentence for every reason why these options cannot be used at `shape`."""
        if shape.num_heads % shape.num_kv_heads:
            yield (
                f"num_heads {shape.num_heads} is not divisible by num_kv_heads {shape.num_kv_heads}"
            )

    def pair_frequencies(self, shape: Shape, length: int | None = None) -> tuple[float, ...]:
        """The head_dim/2 frequencies in radians per token in a sequence of `length` tokens.

        `length` is the training length by default. A pair that does not rotate has frequency 0, and
        an embedding without rotation has no frequencies.
        """
        return ()

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        """The size of each learned tensor of one layer, by name."""
        return {}

    def layers(self, count: int) -> tuple[LayerPlan, ...]:
        """What each of `count` layers attends with."""
        return tuple(LayerPlan(self, None, i if self.per_layer else 0) for i in range(count))

    def parts(self) -> Iterator[Part]:
        """Yield the mechanisms, transforms and scales that it consists of, itself first."""
        yield self
        yield from getattr(self, "transforms", ())
        if self.query_scale is not None:
            yield self.query_scale

    def counts(self, layers: int) -> Mapping[PatternLayer, int]:
        """How many of so many layers attend alike, for each kind of them."""
        return {PatternLayer(embedding=self): layers}

    def learned_parameters(self, shape: Shape, num_layers: int) -> int:
        """The number of parameters that it learns in a model of `num_layers`."""
        learned, known = 0, set[Embedding]()
        for kind, count in self.counts(num_layers).items():
            of, scale = kind.embedding, kind.embedding.query_scale
            modules = count if of.per_layer else of not in known
            known.add(of)
            learned += modules * sum(map(math.prod, of.learned_sizes(shape).values()))
            if scale is not None:
                learned += count * sum(map(math.prod, scale.learned_sizes(shape).values()))
        return learned

    def products(self, shape: Shape) -> tuple[int, int]:
        """The multiplications of matrix products that one layer does beside those of attention: for
        each token, and for each pair of tokens and head."""
        return 0, 0

    def kept(self, shape: Shape, number: int) -> int:
        """The bytes that a layer keeps of each token for the backward pass, beside those of a
        rotation by position; a matrix product has `number` bytes per number."""
        return 0

    def facts(self, shape: Shape) -> Mapping[str, float]:
        """Numbers that follow from the options and that a report should state."""
        return {}

    def longest_sequence(self, shape: Shape) -> int | None:
        """The length in tokens of the longest sequence that has positions; None for any length."""
        return None

    def tensors(self, shape: Shape) -> Tensors:
        """The initial tensors on the CPU; random ones depend on the shape's seed and layer only."""
        return Tensors()

    def attention_factor(self, shape: Shape) -> float:
        """The factor of rotated queries and keys; scores grow by its square."""
        return 1.0

    def logit_factor(self, shape: Shape) -> float:
        """The factor of attention logits, to which dimensions that do not rotate add as well."""
        return 1.0

    def streams(
        self, shape: Shape, tensors: Named, hidden: Tensor, q: Tensor, k: Tensor, at: Places
    ) -> Named:
        """What a cache keeps of new tokens beside their values, by name: (batch, heads, new, …).

        `hidden` (batch, new, width) is the layer's normalised input, q and k are its queries and
        keys before rotation. By default `k` are the keys, rotated if they stay correct.
        """
        from fope_lab.embeddings.scores import rotated

        if at.cos_sin is None or not self.keys_cacheable:
            return {"k": k}
        return {"k": rotated(k, at.cos_sin)}

    def scores(self, shape: Shape, tensors: Named, q: Tensor, kept: Named, at: Places) -> Scores:
        """What attention is computed from. q (batch, num_heads, queries, head_dim) are the last of
        the new tokens' queries before rotation, and `kept` are the `streams` of all tokens.

        By default queries are rotated by `cos_sin`, and `bias` is added.
        """
        import torch

        from fope_lab.embeddings.scores import PairBias, Scores, rotated

        k = kept["k"]
        if at.cos_sin is not None:
            q = rotated(q, at.cos_sin)
        if at.key_cos_sin is not None:
            k = rotated(k, at.key_cos_sin)
        if not self.biases:
            return Scores(q, k)
        if not at.steps:
            return Scores(q, k, rows=PairBias(self, shape, tensors, at.positions))
        distances = torch.arange(at.positions.shape[-1], device=at.positions.device)
        with torch.autocast(distances.device.type, enabled=False):
            bias = self.bias(shape, tensors, distances[-1:], distances)
        return Scores(q, k, table=bias[:, 0].flip(-1))

    def cos_sin(self, shape: Shape, tensors: Named, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The cosines and sines that rotate pair i, which is dimensions i and i + head_dim/2.

        Positions are (length,) or (batch, length), and the last of them ends the sequence. Both
        results are float32 (…, length, head_dim/2), or (…, heads, length, head_dim/2) with
        `cos_sin_per_head`, where heads is num_kv_heads or 1.
        """
        raise NotImplementedError

    def bias(self, shape: Shape, tensors: Named, query: Tensor, key: Tensor) -> Tensor:
        """The bias that is added to attention logits, float32 (…, num_heads, queries, keys).

        Positions are (…, queries) and (…, keys). The bias of a key that comes after its query is
        never used, but must be finite. By default it is `of_distance`.
        """
        distance = (query[..., :, None] - key[..., None, :]).abs()
        return self.of_distance(shape, tensors, distance[..., None, :, :])

    def of_distance(self, shape: Shape, tensors: Named, distance: Tensor) -> Tensor:
        """The bias at distances of at least 0 tokens, for a `RelativeBias`.

        Distances are (…, 1, queries, keys), the result is float32 (…, num_heads, queries, keys).
        """
        raise NotImplementedError

    def embed(self, shape: Shape, tensors: Named, hidden: Tensor, positions: Tensor) -> Tensor:
        """Add absolute positions to token embeddings (batch, length, width), in their dtype."""
        return hidden

    def positions(
        self, shape: Shape, length: int, *, offset: int, device: torch.device | None
    ) -> Tensor:
        """The positions (length,) of consecutive tokens, the first of which has index `offset`.

        Raises ValueError if there are none for offset + length tokens.
        """
        import torch

        tokens, most = offset + length, self.longest_sequence(shape)
        if most is not None and tokens > most:
            raise ValueError(
                f"a sequence of {tokens} tokens is longer than the {most} positions of {self.name}"
            )
        return torch.arange(offset, offset + length, device=device)

    def training_positions(
        self, shape: Shape, lengths: Tensor, width: int, *, first: int, rows: int
    ) -> Tensor | None:
        """The random positions of a batch in training; None where positions are not random.

        They are (width,) if all rows of `width` tokens share them, or else (len(lengths), width).
        `lengths` are the numbers of tokens of each row before its padding. The rows are those from
        `first` on of a batch of `rows`, which draws the same positions however it is divided.
        torch's global generator draws them. Raises ValueError as `positions` does.
        """
        return self.positions(shape, width, offset=0, device=None) if self.draws_positions else None

    def to_hf(self, shape: Shape, max_length: int) -> HfRope:
        """The rotation as transformers describes it in a model of up to `max_length` tokens.

        Raises EmbeddingError with every reason why transformers cannot express this embedding.
        """
        raise EmbeddingError([not_in_transformers(self)])


@dataclass(frozen=True, kw_only=True)
class PatternLayer:
    """One layer of a pattern: an embedding, and how many tokens a query sees at most."""

    embedding: Embedding
    window: int | None = None

    def canonical(self) -> dict[str, Any]:
        """The layer as a sweep file writes it; without a window, the key is left out."""
        window = {} if self.window is None else {"window": self.window}
        return {"embedding": self.embedding.canonical(), **window}


Part = Embedding | FrequencyTransform | QueryScale
"""What an embedding consists of."""


def check_definition(definition: Embedding, shape: Shape, at: FieldPath = ("embedding",)) -> None:
    """Raise EmbeddingError, with every problem, if a definition does not fit a shape."""
    found = list(shape.problems()) or definition.problems(shape)
    if problems := [Problem(at, problem) for problem in found]:
        raise EmbeddingError(problems)


def not_in_transformers(definition: Embedding) -> Problem:
    """The problem that transformers' Llama does not have this embedding."""
    base = FrequencyTransform.to_hf
    known = [kind.name for kind in TRANSFORM_TYPES.all().values() if kind.to_hf is not base]
    fault = f"found {definition.canonical()}"
    return Problem(
        ("embedding",), fault, allowed=("rotary with at most one of " + name_list(known),)
    )


class RelativeBias(Embedding):
    """A bias b_h(|i − j|) of head h, which a subclass gives by `of_distance`.

    Attention reads it from a table (num_heads, length) and never needs the bias of all pairs of
    tokens.
    """

    place: ClassVar[str] = "bias"
    biases: ClassVar[bool] = True
    biases_by_distance: ClassVar[bool] = True


def generator(what: str, shape: Shape) -> torch.Generator:
    """A generator on the CPU for the purpose `what`.

    Different purposes, seeds or layers share no random numbers, even if the seeds are neighbours.
    """
    import torch

    named = f"{what}, seed {shape.seed}, layer {shape.layer}"
    digest = hashlib.sha256(named.encode()).digest()
    return torch.Generator("cpu").manual_seed(int.from_bytes(digest[:8], "big") >> 1)
