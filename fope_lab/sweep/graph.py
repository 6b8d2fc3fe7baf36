"""A node of a plan's graph: a stage that is checked, with its parents and its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fope_lab.stages import StageConfig
from fope_lab.sweep.cost import Cost
from fope_lab.sweep.model_spec import ModelSpec


@dataclass(frozen=True)
class Stage:
    """One unit of work, checked and with its identity.

    `section` is the name of its section in the sweep file, `label` that name with the axes and seed
    of this stage. `config` is the whole resolved configuration as JSON values, `spec` the same as
    an object. `parents` are the keys of the stages that it needs, by role ("from", "data.0", …),
    and `checkpoints` the checkpoint folders that it starts from. `model_spec` describes its model,
    if it has one.
    """

    key: str
    label: str
    section: str
    kind: str
    spec: StageConfig
    config: dict[str, Any]
    axes: dict[str, Any]
    seed: int | None
    parents: dict[str, str]
    checkpoints: dict[str, str]
    model_spec: ModelSpec | None
    cost: Cost

    @property
    def embedding(self) -> str | None:
        """The embedding's name in the sweep file, if the stage has a model."""
        return self.model_spec.embedding_label if self.model_spec else None

    @property
    def scale(self) -> str | None:
        """The model's scale in the sweep file, if it was given one."""
        return self.model_spec.scale if self.model_spec else None
