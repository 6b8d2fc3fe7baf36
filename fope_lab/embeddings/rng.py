"""Random numbers for initial tensors, which depend only on a purpose, a seed and a layer."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from fope_lab.embeddings.base import Shape

if TYPE_CHECKING:
    import torch


def generator(what: str, shape: Shape) -> torch.Generator:
    """A generator on the CPU for the purpose `what`.

    Different purposes, seeds or layers share no random numbers, even if the seeds are neighbours.
    """
    import torch

    named = f"{what}, seed {shape.seed}, layer {shape.layer}"
    digest = hashlib.sha256(named.encode()).digest()
    return torch.Generator("cpu").manual_seed(int.from_bytes(digest[:8], "big") >> 1)
