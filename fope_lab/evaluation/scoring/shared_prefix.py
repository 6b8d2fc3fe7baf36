"""The last states of prompts, of which what they have in common is read once.

Prompts of one task begin alike: a passkey prompt is task line and filler up to its key. Sorted,
those that begin alike for longest lie side by side. The beginning of a batch is read as one
sequence, with a cache that goes on from the last batch's as far as that has it; each prompt of the
batch then reads only its rest, after a copy of the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fope_lab.embeddings.relative import RelativeBias
from fope_lab.evaluation.scoring.hidden_states import device_of, final_states
from fope_lab.model.cache import KeyValueCache
from fope_lab.model.decoder import Decoder

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


class SharedPrefixReader:
    """Reads what the prompts of a batch have in common once.

    Batches come in the order of the prompts (`lexicographic`). Their caches hold a batch's tokens
    and a prompt's.
    """

    def __init__(self, model: Decoder) -> None:
        self._model, self._plain, self._device = model, PlainReader(model), device_of(model)
        self._prefix: Ids = np.empty(0, np.int64)
        self._cache = KeyValueCache(model.config.num_layers)  # of the prefix

    def last_states(self, ids: Ids, last: int) -> Tensor:
        """The final states (batch, last, …) of the last tokens of sorted ids (batch, length)."""
        batch, length = ids.shape
        # Sorted: what the first and the last have in common, all have.
        common = min(_common(ids[0], ids[-1]), length - last)
        if common * LEAST_SHARE < length:
            return self._plain.last_states(ids, last)
        self._read_prefix(ids[0, :common])
        return self._read(ids[:, common:], self._cache.repeated(batch, room=length), last)

    def _read_prefix(self, prefix: Ids) -> None:
        """Have the cache hold these tokens (length,) and no others."""
        known = _common(self._prefix, prefix)
        self._cache.forget(known)
        self._prefix = prefix[:known]  # also if what follows fails
        if known < len(prefix):
            self._read(prefix[None, known:], self._cache, 1)
        self._prefix = prefix

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
    fused = device_of(model).type == "cuda" and any(
        isinstance(one.definition, RelativeBias) for one in embeddings
    )
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
