"""A node of a plan's graph: a stage that is checked, with its parents and its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fope_lab.stages import StageConfig
from fope_lab.sweep.cost import Cost
from fope_lab.sweep.model_spec import Lineage


@dataclass(frozen=True)
class Stage:
    """One unit of work, checked and with its identity.

    `stage` is its name in the sweep file, `name` that with its axes; `config` the whole resolved
    configuration as JSON values, `spec` the same as an object; `parents` the keys of the stages it
    needs by role ("from", "data.0", …), `checkpoints` the folders given as parents.
    """

    key: str
    name: str
    stage: str
    kind: str
    spec: StageConfig
    config: dict[str, Any]
    axes: dict[str, Any]
    seed: int | None
    parents: dict[str, str]
    checkpoints: dict[str, str]
    lineage: Lineage | None
    cost: Cost

    @property
    def embedding(self) -> str | None:
        """The embedding's name in the sweep file, if the stage has a model."""
        return self.lineage.label if self.lineage else None

    @property
    def scale(self) -> str | None:
        """The model's scale in the sweep file, if it was given one."""
        return self.lineage.scale if self.lineage else None
