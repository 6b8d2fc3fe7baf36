"""The stage that gives a model another position embedding without training it.

A sweep file names it by a section of kind `extend` with `train: none`, or by the `embedding` of an
evaluation, and then all evaluations that ask for the same have one such stage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from fope_lab.config.problems import Problem
from fope_lab.stages.base import ChildConfig
from fope_lab.stages.sections import EmbeddingSection


@dataclass(frozen=True, kw_only=True)
class SwapEmbedding(ChildConfig, kind="swap-embedding"):
    """Give a model another position embedding. All its other weights stay as they are.

    `seed` is that of the parent, for tensors that the embedding draws; it is 0 for a model that no
    stage makes.
    """

    version = 1
    entry_point = "trainers.swap_embedding:run"
    leaves_model = True
    user_facing = False
    outside_file = MappingProxyType({"seed": "the seed is that of the model it starts from"})

    embedding: EmbeddingSection
    seed: int = 0

    def problems(self) -> Iterable[Problem]:
        """GPUs, which the stage has no use for."""
        yield from super().problems()
        if self.resources.gpus:
            fault = f"found {self.resources.gpus:g}"
            yield Problem(("resources", "gpus"), fault, "0: without training a CPU does the work")
