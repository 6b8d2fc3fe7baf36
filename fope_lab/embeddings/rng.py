"""Random numbers that an embedding starts from: a seed and a layer always give the same."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from fope_lab.embeddings.base import Shape

if TYPE_CHECKING:
    import torch


def generator(what: str, shape: Shape) -> torch.Generator:
    """A generator on the CPU for `what` is drawn: others draw from neighbouring seeds and layers,
    or something else from the same, without sharing random numbers."""
    import torch

    named = f"{what}, seed {shape.seed}, layer {shape.layer}"
    digest = hashlib.sha256(named.encode()).digest()
    return torch.Generator("cpu").manual_seed(int.from_bytes(digest[:8], "big") >> 1)
