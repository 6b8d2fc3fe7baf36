"""The torch module that holds the tensors of any embedding and applies its definition to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fope_lab.embeddings.base import Embedding, Shape, Tensors, check_definition
from fope_lab.embeddings.query_scales import QueryScale
from fope_lab.embeddings.scores import CosSin, Places, Scores, in_halves, rotated
from fope_lab.embeddings.spec import Spec, parse_embedding


def build_embedding(
    spec: Spec,
    *,
    head_dim: int,
    num_heads: int,
    train_length: int,
    num_kv_heads: int | None = None,
    hidden_size: int | None = None,
    layer: int = 0,
    seed: int = 0,
) -> PositionEmbedding:
    """Build the module of a preset, a preset with options, or a composition.

    `train_length` in tokens is the original length of every transform that has none of its own.
    `layer` and `seed` determine the random numbers of embeddings that draw some. `num_kv_heads` is
    num_heads by default, and `hidden_size` num_heads × head_dim. Raises EmbeddingError for a
    description that is wrong or does not fit the sizes.
    """
    definition = parse_embedding(spec)
    shape = Shape(
        head_dim=head_dim,
        num_heads=num_heads,
        num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
        train_length=train_length,
        hidden_size=hidden_size,
        layer=layer,
        seed=seed,
    )
    return PositionEmbedding(definition, shape)


def initial_tensors(definition: Embedding, shape: Shape) -> Tensors:
    """Return an embedding's initial tensors on the CPU, also if its code names no device, and
    whatever device the model is built on."""
    with torch.device("cpu"):
        return definition.tensors(shape)


class QueryScaling(nn.Module):
    """The query scale of one layer, with what it learns as attributes under their names."""

    def __init__(self, definition: QueryScale, shape: Shape) -> None:
        super().__init__()
        self.definition, self.shape = definition, shape
        with torch.device("cpu"):
            learned = definition.learned(shape)
        for name, tensor in learned.items():
            self.register_parameter(name, nn.Parameter(tensor))

    def forward(self, q: Tensor, seen: Tensor) -> Tensor:
        """Queries (batch, num_heads, queries, head_dim) times their factors, in their dtype. They
        see so many tokens: `seen` is (rows, queries)."""
        with torch.autocast(q.device.type, enabled=False):
            learned = dict(self.named_parameters())
            factor = self.definition.factor(self.shape, learned, seen.float())
        return (q * factor[..., None]).to(q.dtype)

    def extra_repr(self) -> str:
        return repr(self.definition)


class PositionEmbedding(nn.Module):
    """The position embedding of one layer, or of all layers if they share one.

    `inv_freq` (head_dim/2,) holds radians per token, 0 for a pair that does not rotate; it is None
    if nothing rotates. `rotate` multiplies queries and keys by `attention_factor`. The tensors of
    the definition are attributes under their names, as are some of its properties. Buffers keep
    their dtype when the model is cast. Raises EmbeddingError if the definition does not fit.
    """

    inv_freq: Tensor | None

    def __init__(self, definition: Embedding, shape: Shape) -> None:
        super().__init__()
        check_definition(definition, shape)
        self.definition = definition
        self.shape = shape
        self.attention_factor = definition.attention_factor(shape)
        self.logit_factor = definition.logit_factor(shape)
        self.rotates, self.biases = definition.rotates, definition.biases
        self.biases_by_distance = definition.biases_by_distance
        self.keys_cacheable = definition.keys_cacheable
        self.draws_positions = definition.draws_positions
        tensors = initial_tensors(definition, shape)
        for name, tensor in tensors.constants.items():
            self.register_buffer(name, tensor, persistent=False)
        for name, tensor in tensors.drawn.items():
            self.register_buffer(name, tensor)
        for name, tensor in tensors.learned.items():
            self.register_parameter(name, nn.Parameter(tensor))
        if "inv_freq" not in self._buffers:
            self.register_buffer("inv_freq", None, persistent=False)

    def cos_sin(self, positions: Tensor) -> CosSin | None:
        """cos and (−sin, sin) over all dimensions of a head, or None if nothing rotates.

        They include the attention factor. For positions (…, length) they are
        (…, heads, length, head_dim), where heads is 1 or num_kv_heads, and float32 even under
        autocast.
        """
        if not self.rotates:
            return None
        with torch.autocast(positions.device.type, enabled=False):
            cos, sin = self.definition.cos_sin(self.shape, self._tensors(), positions)
        if self.attention_factor != 1.0:
            cos, sin = cos * self.attention_factor, sin * self.attention_factor
        if not self.definition.cos_sin_per_head:
            cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)
        return in_halves(cos, sin)

    def rotate(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor,
        cos_sin: CosSin | None = None,
        *,
        key_positions: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Rotate queries (batch, num_heads, length, head_dim) and keys (batch, num_kv_heads, …).

        `positions`, (length,) or (batch, length), are those of queries and keys, unless
        `key_positions` are those of the keys. Fewer queries belong to the last positions.
        `cos_sin` is the result of `cos_sin(positions)` if the caller has it already. The results
        have the shapes and dtypes of q and k.
        """
        cos_sin = self.cos_sin(positions) if cos_sin is None else cos_sin
        if cos_sin is None:
            return q, k
        key_cos_sin = cos_sin if key_positions is None else self.cos_sin(key_positions)
        assert key_cos_sin is not None  # as it rotates
        return rotated(q, cos_sin), rotated(k, key_cos_sin)

    def places(self, positions: Tensor, new: int | None = None, *, steps: bool = False) -> Places:
        """The places of tokens at positions (…, tokens), of which the last `new` are new.

        `steps` says that positions grow by one, which the caller has found out.
        """
        new = positions.shape[-1] if new is None else new
        own = self.cos_sin(positions[..., positions.shape[-1] - new :])
        of_keys = None if self.keys_cacheable or own is None else own
        if of_keys is not None and new < positions.shape[-1]:
            of_keys = self.cos_sin(positions)
        return Places(positions, new, steps and self.biases_by_distance, own, of_keys)

    def streams(self, hidden: Tensor, q: Tensor, k: Tensor, at: Places) -> Mapping[str, Tensor]:
        """What a cache keeps of new tokens beside values (see `Embedding.streams`)."""
        return self.definition.streams(self.shape, self._tensors(), hidden, q, k, at)

    def scores(self, q: Tensor, kept: Mapping[str, Tensor], at: Places) -> Scores:
        """What attention is computed from (see `Embedding.scores`)."""
        if self.logit_factor != 1.0:
            q = q * self.logit_factor
        return self.definition.scores(self.shape, self._tensors(), q, kept, at)

    def bias(self, query: Tensor, key: Tensor) -> Tensor | None:
        """The bias to add to attention logits, or None if the embedding has none.

        Positions (queries,) and (keys,) give float32 (num_heads, queries, keys); positions with a
        batch dimension give (batch, num_heads, queries, keys).
        """
        if not self.biases:
            return None
        with torch.autocast(key.device.type, enabled=False):
            return self.definition.bias(self.shape, self._tensors(), query, key)

    def embed(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Add the positions of absolute methods to token embeddings (batch, length, width)."""
        return self.definition.embed(self.shape, self._tensors(), hidden, positions)

    def positions(
        self, length: int, *, offset: int = 0, device: torch.device | None = None
    ) -> Tensor:
        """The positions (length,) of consecutive tokens (see `Embedding.positions`)."""
        return self.definition.positions(self.shape, length, offset=offset, device=device)

    def training_positions(
        self, lengths: Tensor, width: int, *, first: int, rows: int
    ) -> Tensor | None:
        """The random positions of a batch in training (see `Embedding.training_positions`)."""
        return self.definition.training_positions(
            self.shape, lengths, width, first=first, rows=rows
        )

    def extra_repr(self) -> str:
        return repr(self.definition)

    def compute_constants(self) -> None:
        """Compute the constants again, after a loader has allocated memory for them."""
        for name, tensor in initial_tensors(self.definition, self.shape).constants.items():
            self._buffers[name] = tensor.to(getattr(self, name).device)

    def _tensors(self) -> dict[str, Tensor]:
        buffers = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        parameters = {name: value for name, value in self._parameters.items() if value is not None}
        return buffers | parameters

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move buffers with the model, but never cast them: angles need exact frequencies."""
        before = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            moved = self._buffers[name]
            self._buffers[name] = buffer if moved is None else buffer.to(moved.device)
        return self
