"""The one module that holds an embedding's tensors and applies its definition to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fope_lab.embeddings.base import Embedding, Shape, check_definition
from fope_lab.embeddings.spec import Spec, parse_embedding


def build_embedding(
    spec: Spec,
    *,
    head_dim: int,
    num_heads: int,
    train_length: int,
    num_kv_heads: int | None = None,
    layer: int = 0,
    seed: int = 0,
) -> PositionEmbedding:
    """The module of a preset's name, a preset with options or a composition.

    `train_length` (tokens) is the original length to every transform that has none of its own;
    `layer` and `seed` choose the random numbers of embeddings that draw some. Raises
    EmbeddingError for a description that is wrong or does not fit the sizes.
    """
    definition = parse_embedding(spec)
    shape = Shape(
        head_dim=head_dim,
        num_heads=num_heads,
        num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
        train_length=train_length,
        layer=layer,
        seed=seed,
    )
    return PositionEmbedding(definition, shape)


CosSin = tuple[Tensor, Tensor]
"""cos and (−sin, sin) over all dimensions of a head."""


class PositionEmbedding(nn.Module):
    """A position embedding of one layer, or of all layers where they share one.

    `inv_freq` (head_dim/2,) holds radians per token, 0 where a pair does not rotate, or is None
    where nothing rotates. `attention_factor` is what `rotate` scales queries and keys by. Tensors
    of the definition are attributes under their names. Buffers keep their dtype whatever the
    model is cast to.
    """

    inv_freq: Tensor | None

    def __init__(self, definition: Embedding, shape: Shape) -> None:
        super().__init__()
        check_definition(definition, shape)
        self.definition = definition
        self.shape = shape
        self.attention_factor = definition.attention_factor(shape)
        tensors = definition.tensors(shape)
        for name, tensor in tensors.constants.items():
            self.register_buffer(name, tensor, persistent=False)
        for name, tensor in tensors.drawn.items():
            self.register_buffer(name, tensor)
        for name, tensor in tensors.learned.items():
            self.register_parameter(name, nn.Parameter(tensor))
        if "inv_freq" not in self._buffers:
            self.register_buffer("inv_freq", None, persistent=False)

    @property
    def rotates(self) -> bool:
        """Whether `rotate` does anything."""
        return self.definition.rotates

    @property
    def biases(self) -> bool:
        """Whether `bias` returns one."""
        return self.definition.biases

    @property
    def draws_positions(self) -> bool:
        """Whether `positions` are drawn at random, anew at each call (see `Embedding`)."""
        return self.definition.draws_positions

    @property
    def keys_cacheable(self) -> bool:
        """Whether a rotated key stays right while the sequence grows (see `Embedding`)."""
        return self.definition.keys_cacheable

    def cos_sin(self, positions: Tensor) -> CosSin | None:
        """What `rotate` multiplies by, or None where nothing rotates.

        cos and (−sin, sin) over all dimensions of a head, attention factor included: float32, also
        under autocast, (…, heads, length, head_dim) for positions (…, length), where heads is 1 or
        num_kv_heads.
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
        """Queries (batch, num_heads, length, head_dim) and keys (batch, num_kv_heads, …), rotated.

        `positions` is (length,) or (batch, length), of queries and keys unless the keys have
        `key_positions` of their own. Where there are fewer queries, they are those of the last
        positions. `cos_sin` is the result of `cos_sin(positions)` where the caller has it already.
        """
        cos_sin = self.cos_sin(positions) if cos_sin is None else cos_sin
        if cos_sin is None:
            return q, k
        key_cos_sin = cos_sin if key_positions is None else self.cos_sin(key_positions)
        assert key_cos_sin is not None  # as it rotates
        return _turn(q, *_for_queries(cos_sin, *q.shape[1:3])), _turn(k, *key_cos_sin)

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """What to add to attention logits, float32 (num_heads, Q, K), or None.

        Positions with a leading batch dimension give (batch, num_heads, Q, K).
        """
        if not self.biases:
            return None
        with torch.autocast(key_positions.device.type, enabled=False):
            return self.definition.bias(self.shape, self._tensors(), query_positions, key_positions)

    def embed(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Token embeddings (batch, length, width), with positions added by absolute methods."""
        return self.definition.embed(self.shape, self._tensors(), hidden, positions)

    def positions(
        self, length: int, *, offset: int = 0, device: torch.device | None = None
    ) -> Tensor:
        """Positions (length,) of a sequence whose first token is number `offset`."""
        return self.definition.positions(self.shape, length, offset=offset, device=device)

    def extra_repr(self) -> str:
        """The definition."""
        return repr(self.definition)

    def compute_constants(self) -> None:
        """Put the constants where they are again: for a loader that made room for them only."""
        for name, tensor in self.definition.tensors(self.shape).constants.items():
            self._buffers[name] = tensor.to(getattr(self, name).device)

    def _tensors(self) -> dict[str, Tensor]:
        buffers = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        parameters = {name: value for name, value in self._parameters.items() if value is not None}
        return buffers | parameters

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Moves buffers with the model but never casts them: angles need exact frequencies."""
        before = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            moved = self._buffers[name]
            self._buffers[name] = buffer if moved is None else buffer.to(moved.device)
        return self


def _for_queries(cos_sin: CosSin, heads: int, length: int) -> CosSin:
    """CosSin of key-value heads for the last `length` positions, repeated for the query heads that
    share each of them."""
    cos, signed_sin = cos_sin
    if length < cos.shape[-2]:
        cos, signed_sin = cos[..., -length:, :], signed_sin[..., -length:, :]
    if cos.shape[-3] in (1, heads):
        return cos, signed_sin
    groups = heads // cos.shape[-3]
    return cos.repeat_interleave(groups, dim=-3), signed_sin.repeat_interleave(groups, dim=-3)


def _turn(x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """x·cos + (−x₂, x₁)·sin on the halves of x (batch, heads, length, head_dim), in x's dtype.

    For speed (a tenth of a small model's attention on a CPU): two passes over whole heads rather
    than four over halves, and heads after length, as the projections leave them in memory.
    """
    x, cos, signed_sin = (tensor.transpose(-3, -2) for tensor in (x, cos, signed_sin))
    swapped = x.roll(x.shape[-1] // 2, dims=-1)
    turned = torch.addcmul(x * cos, swapped, signed_sin)
    return turned.transpose(-3, -2).to(x.dtype)
