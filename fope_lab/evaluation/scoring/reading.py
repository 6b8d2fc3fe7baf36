"""The final states of sequences, each read as if it were alone, and their common beginnings once.

Prompts of one task begin alike: a passkey prompt is task line and filler up to its key. Sorted,
those that begin alike for longest lie side by side. The beginning of a batch is read as one
sequence, with a cache that goes on from the last batch's as far as that has it; each prompt of the
batch then reads only its rest, after a copy of the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fope_lab.model.cache import KeyValueCache
from fope_lab.model.decoder import Decoder


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's first parameter or buffer; the CPU if it has none."""
    tensors = [*model.parameters(), *model.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


def pass_over(model: Any, sequences: int, length: int) -> None:
    """Draw the positions that `final_states` would draw for so many sequences of a length."""
    embeddings = list(getattr(model, "position_embeddings", ()))
    if any(one.draws_positions for one in embeddings):
        for _ in range(sequences):
            embeddings[0].positions(length, device=device_of(model))


def final_states(model: Any, ids: Tensor, **more: Any) -> Tensor:
    """`model.hidden` of ids (batch, length): (batch, length, …); takes `more`, too. Each sequence
    draws its own positions, so that batching changes no number."""
    embeddings = list(getattr(model, "position_embeddings", ()))
    drawn = []
    if any(one.draws_positions for one in embeddings):
        length, device = ids.shape[1], ids.device
        drawn = [torch.stack([embeddings[0].positions(length, device=device) for _ in ids])]
    states: Tensor = model.hidden(ids, *drawn, **more)
    return states


Ids = NDArray[np.int64]

LEAST_SHARE = 8
"""A common beginning shorter than one in so many tokens is read with each prompt: to read it apart
takes a pass more, which may cost more than is saved. (On a CPU, one in sixteen already paid.)"""

PIECE = 512
"""Most tokens of a sequence that are read at once after a cache. Attention computes, and masks,
what each of them would have of all others; PyTorch leaves that out only without a cache."""


class PlainReader:
    """Reads each prompt as a whole."""

    def __init__(self, model: Any) -> None:
        self._model, self._device = model, device_of(model)
        self._skips = isinstance(model, Decoder)

    def last_states(self, ids: Ids, last: int) -> Tensor:
        """The final states (batch, last, …) of the last tokens of ids (batch, length)."""
        wanted = {"last": last} if self._skips else {}
        states = final_states(self._model, torch.from_numpy(ids).to(self._device), **wanted)
        return states[:, -last:]

    def skip(self, ids: Ids, last: int) -> None:
        """Leave out a batch, whose random positions others have drawn."""
        pass_over(self._model, *ids.shape)


class _PrefixRead(NamedTuple):
    """The tokens of `prefix` from number `start` on, which one pass reads after those before."""

    prefix: Ids
    start: int


class SharedPrefixReader:
    """Reads what the prompts of a batch have in common once.

    Batches come in the order of the prompts (`lexicographic`). Their caches hold a batch's tokens
    and a prompt's. What a batch gives depends in its last bits on which passes have filled the
    cache. So batches that are left out leave a note of their passes, and those that the cache still
    has a part of are made up for when a batch needs it.
    """

    def __init__(self, model: Decoder) -> None:
        self._model, self._plain, self._device = model, PlainReader(model), device_of(model)
        self._cache = KeyValueCache(model.config.num_layers)  # of the prefix
        self._reads: list[_PrefixRead] = []
        """The passes that the cache holds a part of; the last one's prefix is all that it holds."""
        self._done = 0
        """How many of them the cache has had."""

    def last_states(self, ids: Ids, last: int) -> Tensor:
        """The final states (batch, last, …) of the last tokens of sorted ids (batch, length)."""
        batch, length = ids.shape
        common = self._shared(ids, last)
        if common is None:
            return self._plain.last_states(ids, last)
        self._plan(ids[0, :common])
        self._read_prefixes()
        self._cache.forget(common)
        return self._read(ids[:, common:], self._cache.repeated(batch, room=length), last)

    def skip(self, ids: Ids, last: int) -> None:
        """Leave out a batch of sorted ids (batch, length), as if it had been read."""
        common = self._shared(ids, last)
        if common is not None:
            self._plan(ids[0, :common])

    def _shared(self, ids: Ids, last: int) -> int | None:
        """How many tokens of a sorted batch are its prefix; None if it is read whole."""
        # Sorted: what the first and the last have in common, all have.
        common = min(_common(ids[0], ids[-1]), ids.shape[1] - last)
        return common if common * LEAST_SHARE >= ids.shape[1] else None

    def _plan(self, prefix: Ids) -> None:
        """Note the pass after which the cache holds these tokens (length,) and no others."""
        before = self._reads[-1].prefix if self._reads else prefix[:0]
        known = _common(before, prefix)
        while self._reads and self._reads[-1].start >= known:
            self._reads.pop()
        self._done = min(self._done, len(self._reads))
        self._reads.append(_PrefixRead(prefix, known))

    def _read_prefixes(self) -> None:
        """Make up for the passes that the cache missed."""
        while self._done < len(self._reads):
            one = self._reads[self._done]
            self._cache.forget(one.start)
            try:
                if one.start < len(one.prefix):
                    self._read(one.prefix[None, one.start :], self._cache, 1)
            except BaseException:
                del self._reads[self._done :]
                self._done = 0  # part of what the cache had is forgotten
                raise
            self._done += 1

    def _read(self, ids: Ids, cache: KeyValueCache, last: int) -> Tensor:
        """The states (batch, last, …) of the last of the tokens that follow those of a cache."""
        pieces = math.ceil(ids.shape[1] / max(PIECE, 2 * last))
        for piece in torch.from_numpy(ids).to(self._device).tensor_split(pieces, dim=1):
            states = self._model.hidden(piece, cache=cache, last=last)
        return states


Reader = PlainReader | SharedPrefixReader


def reader_of(model: Any) -> Reader:
    """What reads prompts for a model, whose results are the same up to rounding.

    A common beginning is read once where a cache gives what reading at once does: by a `Decoder`
    whose keys stay right while the sequence grows. With a bias on CUDA it would be no gain: the
    fused kernel (fope_lab/model/flex.py) reads whole sequences only.
    """
    if not isinstance(model, Decoder):
        return PlainReader(model)
    embeddings = list(model.position_embeddings)
    cacheable = all(one.keys_cacheable for one in embeddings)
    by_distance = any(one.biases_by_distance for one in embeddings)
    fused = by_distance and device_of(model).type == "cuda"
    return SharedPrefixReader(model) if cacheable and not fused else PlainReader(model)


def lexicographic(prompts: Sequence[Ids]) -> list[int]:
    """The places of prompts of non-negative ids, sorted so that those lie side by side that begin
    alike."""
    as_bytes = [ids.astype(">u8").tobytes() for ids in prompts]  # they sort as the numbers do
    return sorted(range(len(prompts)), key=as_bytes.__getitem__)


def _common(one: Ids, other: Ids) -> int:
    """How many tokens two sequences begin with in common."""
    most = min(len(one), len(other))
    different = np.flatnonzero(one[:most] != other[:most])
    return int(different[0]) if len(different) else most
