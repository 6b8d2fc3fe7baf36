"""The torch module that holds the tensors of any embedding and applies its definition to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fope_lab.embeddings.base import Embedding, RelativeBias, Shape, Tensors, check_definition
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


CosSin = tuple[Tensor, Tensor]
"""cos and (−sin, sin), each over all dimensions of a head."""


def initial_tensors(definition: Embedding, shape: Shape) -> Tensors:
    """Return an embedding's initial tensors on the CPU, also if its code names no device, and
    whatever device the model is built on."""
    with torch.device("cpu"):
        return definition.tensors(shape)


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
        self.rotates, self.biases = definition.rotates, definition.biases
        self.biases_by_distance = isinstance(definition, RelativeBias)
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
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)

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
        return _rotated(q, *_for_queries(cos_sin, *q.shape[1:3])), _rotated(k, *key_cos_sin)

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


def _for_queries(cos_sin: CosSin, heads: int, length: int) -> CosSin:
    """Those of the last `length` positions, repeated for query heads that share a key head."""
    cos, signed_sin = cos_sin
    if length < cos.shape[-2]:
        cos, signed_sin = cos[..., -length:, :], signed_sin[..., -length:, :]
    if cos.shape[-3] in (1, heads):
        return cos, signed_sin
    groups = heads // cos.shape[-3]
    return cos.repeat_interleave(groups, dim=-3), signed_sin.repeat_interleave(groups, dim=-3)


def _rotated(x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """x·cos + (−x₂, x₁)·sin on the halves of x (batch, heads, length, head_dim), in x's dtype.

    Two passes over whole heads are faster than four over halves, and so are heads after length, as
    the projections leave them in memory: together a tenth of a small model's attention on a CPU.
    """
    x, cos, signed_sin = (tensor.transpose(-3, -2) for tensor in (x, cos, signed_sin))
    swapped = x.roll(x.shape[-1] // 2, dims=-1)
    turned = torch.addcmul(x * cos, swapped, signed_sin)
    return turned.transpose(-3, -2).to(x.dtype)
