"""A cache of the keys and values of earlier tokens, which generation reads again and again."""

from __future__ import annotations

import torch
from torch import Tensor

from fope_lab.embeddings.module import CosSin, PositionEmbedding


class LayerCache:
    """The keys and values of one layer, each (batch, num_kv_heads, tokens, head_dim)."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def rotated(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor,
        embedding: PositionEmbedding,
        cos_sin: CosSin | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Add new keys and values; return rotated queries and all rotated keys and values.

        `positions` (…, tokens) are those of all tokens, `cos_sin` belongs to the new tokens only.
        The cache holds rotated keys, unless the rotation depends on the length of the sequence: it
        then holds keys before rotation, and rotates all of them at each call. Raises RuntimeError
        for keys or values that need gradients.
        """
        new = k.shape[2]
        own = positions[..., -new:]
        if embedding.keys_cacheable:
            q, k = embedding.rotate(q, k, own, cos_sin)
            return q, *self._append(k, v, positions.shape[-1])
        k, v = self._append(k, v, positions.shape[-1])
        return *embedding.rotate(q, k, own, cos_sin, key_positions=positions), v

    def repeated(self, batch: int, tokens: int, room: int) -> LayerCache:
        """Copy the first `tokens` tokens of a cache of one sequence for `batch` sequences."""
        repeated = LayerCache(room)
        if self._keys is not None and self._values is not None:
            start = (x[:, :, :tokens].expand(batch, -1, -1, -1) for x in (self._keys, self._values))
            repeated._keys, repeated._values = (repeated._put(None, x, tokens) for x in start)
        return repeated

    def _append(self, k: Tensor, v: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """Add keys and values as the last before `end`; return those of all tokens."""
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
            raise RuntimeError("a cache keeps no gradients: use it under torch.no_grad()")
        self._keys = self._put(self._keys, k, end)
        self._values = self._put(self._values, v, end)
        return self._keys[:, :, :end], self._values[:, :, :end]

    def _put(self, kept: Tensor | None, new: Tensor, end: int) -> Tensor:
        """Write `new` as the last tokens before `end`, after `kept`, in larger memory if needed."""
        start = end - new.shape[2]
        if kept is None:
            kept = _memory(new, max(self._room, end))
        elif kept.shape[2] < end:
            smaller, kept = kept, _memory(new, max(2 * kept.shape[2], end))
            kept[:, :, :start] = smaller[:, :, :start]
        kept[:, :, start:end] = new
        return kept


def _memory(like: Tensor, tokens: int) -> Tensor:
    batch, heads, _, head_dim = like.shape
    return like.new_empty(batch, heads, tokens, head_dim)


class KeyValueCache:
    """The keys and values of a batch of sequences of one length, between passes of a decoder.

    Pass the same cache to each call of the model, with the next tokens, under `torch.no_grad()`. It
    has memory for `room` tokens at first, and doubles it when it is full.

    Dynamic NTK and randomised positions rotate all keys again for each length (`keys_cacheable` is
    False). These keys come from the hidden states that earlier tokens had at their length. From the
    second layer on they differ from those of a pass over the whole longer sequence, which a cache
    cannot reproduce.
    """

    def __init__(self, num_layers: int, *, room: int = 64) -> None:
        self.layers = [LayerCache(room) for _ in range(num_layers)]
        self.length = 0
        """The number of tokens in the cache."""
        self._positions: Tensor | None = None

    def positions(
        self, new: Tensor | None, tokens: int, embedding: PositionEmbedding, device: torch.device
    ) -> Tensor:
        """The positions (…, length + tokens) of all tokens, of which `new` are those of the last.

        By default they are those of the embedding, which may draw new positions for all tokens.
        """
        if new is None and not embedding.keys_cacheable:
            return embedding.positions(self.length + tokens, device=device)
        if new is None:
            new = embedding.positions(tokens, offset=self.length, device=device)
        if self._positions is None:
            return new
        before = self._positions
        rows = torch.broadcast_shapes(before.shape[:-1], new.shape[:-1])
        return torch.cat((before.expand(*rows, -1), new.expand(*rows, -1)), dim=-1)

    def advance(self, positions: Tensor) -> None:
        """Count the tokens of a complete pass, to which these positions (…, tokens) belong."""
        self._positions = positions
        self.length = positions.shape[-1]

    def forget(self, length: int) -> None:
        """Drop all tokens but the first `length`."""
        if self._positions is not None and length < self.length:
            self._positions = self._positions[..., :length]
            self.length = length

    def repeated(self, batch: int, *, room: int) -> KeyValueCache:
        """A copy of a cache of one sequence for `batch` sequences that begin with it.

        The copy has memory for `room` tokens each.
        """
        copy = KeyValueCache(0)
        copy.layers = [layer.repeated(batch, self.length, room) for layer in self.layers]
        copy.length, copy._positions = self.length, self._positions
        return copy
