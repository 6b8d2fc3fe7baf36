"""A cache of the keys and values of earlier tokens, which generation reads again and again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fope_lab.embeddings.module import PositionEmbedding


class LayerCache:
    """What one layer keeps of each token, by name: its values, its keys, and what else its
    embedding needs, each (batch, heads, tokens, …). With a `window` W it keeps no more tokens than
    the queries of the next ones see, and as many again, so that they are seldom moved."""

    def __init__(self, room: int, window: int | None = None) -> None:
        self._room, self._window = room, window
        self._kept: dict[str, Tensor] = {}
        self._first = 0  # the token in the first place of the memory

    def append(self, streams: Mapping[str, Tensor], end: int) -> dict[str, Tensor]:
        """Add new tokens as the last before `end`; return those of all tokens that they see. Raises
        RuntimeError for tensors that need gradients."""
        if torch.is_grad_enabled() and any(each.requires_grad for each in streams.values()):
            raise RuntimeError("a cache keeps no gradients: use it under torch.no_grad()")
        start = end - next(iter(streams.values())).shape[2]
        seen = 0 if self._window is None else max(0, start - self._window + 1)
        first = self._first if end - self._first <= self._most(end - start) else seen
        for name, new in streams.items():
            self._kept[name] = self._put(self._kept.get(name), new, first, end)
        self._first = first
        return {name: kept[:, :, seen - first : end - first] for name, kept in self._kept.items()}

    def repeated(self, batch: int, tokens: int, room: int) -> LayerCache:
        """Copy the first `tokens` tokens of a cache of one sequence for `batch` sequences."""
        repeated = LayerCache(room)
        for name, kept in self._kept.items():
            start = kept[:, :, :tokens].expand(batch, *[-1] * (kept.dim() - 1))
            repeated._kept[name] = repeated._put(None, start, 0, tokens)
        return repeated

    def _most(self, new: int) -> float:
        """How many tokens are kept at most."""
        return math.inf if self._window is None else 2 * self._window + new

    def _put(self, kept: Tensor | None, new: Tensor, first: int, end: int) -> Tensor:
        """Write `new` as the last tokens before `end`, after those of `kept` from `first` on, in
        larger memory if needed."""
        start, shift = end - new.shape[2], first - self._first
        most = self._most(new.shape[2])
        if kept is None:
            kept = _memory(new, int(min(max(self._room, end), max(most, end - first))))
        elif kept.shape[2] < end - first or shift:
            before = kept[:, :, shift : start - self._first]
            if kept.shape[2] < end - first:
                kept = _memory(new, int(min(max(2 * kept.shape[2], end - first), most)))
            else:
                before = before.clone()  # the two may overlap
            kept[:, :, : start - first] = before
        kept[:, :, start - first : end - first] = new
        return kept


def _memory(like: Tensor, tokens: int) -> Tensor:
    batch, heads, _, *sizes = like.shape
    return like.new_empty(batch, heads, tokens, *sizes)


class KeyValueCache:
    """The keys and values of a batch of sequences of one length, between passes of a decoder.

    Pass the same cache to each call of the model, with the next tokens, under `torch.no_grad()`. It
    has memory for `room` tokens at first, and doubles it when it is full. Layers with `windows`
    keep no more than these need, and forget nothing but that.

    Dynamic NTK and randomised positions rotate all keys again for each length (`keys_cacheable` is
    False). These keys come from the hidden states that earlier tokens had at their length. From the
    second layer on they differ from those of a pass over the whole longer sequence, which a cache
    cannot reproduce.
    """

    def __init__(
        self, num_layers: int, *, room: int = 64, windows: Sequence[int | None] = ()
    ) -> None:
        of_layers = windows or [None] * num_layers
        self.layers = [LayerCache(room, window) for window in of_layers]
        self._is_windowed = any(of_layers)
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
        """Drop all tokens but the first `length`. Raises RuntimeError if windows have dropped some
        that the next ones would see."""
        if self._is_windowed:
            raise RuntimeError("a cache with windows has dropped what comes before them")
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
