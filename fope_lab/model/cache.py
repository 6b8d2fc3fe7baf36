"""Keys and values of the tokens read so far, so that the next ones need not read them again."""

from __future__ import annotations

import torch
from torch import Tensor

from fope_lab.embeddings.module import CosSin, PositionEmbedding


class LayerCache:
    """One layer's keys and values, (batch, num_kv_heads, tokens, head_dim)."""

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
        """The new queries rotated, and the keys, rotated, and values of all tokens up to now.

        `positions` (…, tokens) are those of all of them, `cos_sin` belong to the new ones alone.

        Keys are kept as they are rotated, unless a longer sequence would rotate them otherwise:
        then they are kept as they were, and all of them are rotated each time.
        """
        new = k.shape[2]
        own = positions[..., -new:]
        if embedding.keys_cacheable:
            q, k = embedding.rotate(q, k, own, cos_sin)
            return q, *self._append(k, v, positions.shape[-1])
        k, v = self._append(k, v, positions.shape[-1])
        return *embedding.rotate(q, k, own, cos_sin, key_positions=positions), v

    def repeated(self, batch: int, tokens: int, room: int) -> LayerCache:
        """The first `tokens` tokens of the one sequence kept here, for each of `batch`."""
        repeated = LayerCache(room)
        if self._keys is not None and self._values is not None:
            repeated._keys = _repeated(self._keys, batch, tokens, room)
            repeated._values = _repeated(self._values, batch, tokens, room)
        return repeated

    def _append(self, k: Tensor, v: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """All keys and values, with these as the last before `end`."""
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
            raise RuntimeError("a cache keeps no gradients: use it under torch.no_grad()")
        self._keys = self._put(self._keys, k, end)
        self._values = self._put(self._values, v, end)
        return self._keys[:, :, :end], self._values[:, :, :end]

    def _put(self, kept: Tensor | None, new: Tensor, end: int) -> Tensor:
        """Memory that holds `kept` and then, as the last before `end`, `new`."""
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


def _repeated(kept: Tensor, batch: int, tokens: int, room: int) -> Tensor:
    memory = _memory(kept.expand(batch, -1, -1, -1), max(room, tokens))
    memory[:, :, :tokens] = kept[:, :, :tokens]
    return memory


class Cache:
    """What a decoder keeps of a batch of sequences, all of the same length, between passes.

    Pass the same one to each call of the model with the tokens that come next, under
    `torch.no_grad()`. It starts with room for `room` tokens, and doubles that when it is full.

    Keys that a position embedding rotates anew for each length (`keys_cacheable` False: dynamic
    NTK, randomised positions) come from states that the earlier tokens had at their length. From
    the second layer on, these are not what a pass over the longer sequence would compute; nothing
    but such a pass could tell.
    """

    def __init__(self, num_layers: int, *, room: int = 64) -> None:
        self.layers = [LayerCache(room) for _ in range(num_layers)]
        self.length = 0
        """Tokens read so far."""
        self._positions: Tensor | None = None

    def positions(
        self, new: Tensor | None, tokens: int, embedding: PositionEmbedding, device: torch.device
    ) -> Tensor:
        """Positions (…, length + tokens) of all tokens where those of the last are `new`.

        By default they are the embedding's, which may draw all of them anew.
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
        """The pass over the tokens up to the last of these positions is complete."""
        self._positions = positions
        self.length = positions.shape[-1]

    def forget(self, length: int) -> None:
        """Keep the first `length` tokens only: what was read after them may be read anew."""
        if self._positions is not None and length < self.length:
            self._positions = self._positions[..., :length]
            self.length = length

    def repeated(self, batch: int, *, room: int) -> Cache:
        """A copy of this cache of one sequence for `batch` that begin like it, with room for `room`
        tokens each."""
        copy = Cache(0)
        copy.layers = [layer.repeated(batch, self.length, room) for layer in self.layers]
        copy.length, copy._positions = self.length, self._positions
        return copy
