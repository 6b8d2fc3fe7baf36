"""What the `from` of a stage means at a grid point.

`from` names a stage of the same file, a stage of another file (`file.yaml#stage`), a checkpoint
folder, or a model of the Hugging Face hub (`hf:NAME@COMMIT`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.config.cache import Cache
from fope_lab.config.problems import SweepError, did_you_mean, name_list
from fope_lab.model.checkpoint import CheckpointError
from fope_lab.model.hub import PREFIX
from fope_lab.sweep.cross_file import JoinError, StageReferences
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.grid_point import GridPoint
from fope_lab.sweep.model_spec import ExternalModel, ModelSpec, read_checkpoint, read_hub_model

OTHER_FORMS = "FILE.yaml#STAGE, a checkpoint folder, or hf:NAME@COMMIT"


@dataclass(frozen=True)
class Parent:
    """What a stage starts from at a grid point: a stage, a model that no stage makes, or nothing.

    `problem` says why there is nothing; it is None if the stage has no `from`, and if the parent
    has a problem of its own. `memo_key` tells parents apart: stages that are equal, and that
    different axes lead to, are different parents. `ancestors` are the stages of other files that
    come into the sweep with this parent, itself included.
    """

    memo_key: Hashable = None
    stage: Stage | None = None
    external: ExternalModel | None = None
    problem: str | None = None
    ancestors: tuple[Stage, ...] = ()

    @property
    def exists(self) -> bool:
        """Whether there is a stage or a model to start from."""
        return self.stage is not None or self.external is not None

    @property
    def model_spec(self) -> ModelSpec | None:
        """The model to start from."""
        origin = self.stage or self.external
        return origin.model_spec if origin else None


class ParentFinder:
    """Finds the parents of the stages of one sweep file.

    `sections` are the names of the file's stages, and `folder` is where relative paths start. With
    `axes_known` false, because a part of the grid is wrong, a stage of another file that does not
    match the grid point is not called a problem.
    """

    def __init__(
        self,
        sections: Collection[str],
        folder: Path,
        references: StageReferences,
        cache: Cache,
        axes_known: bool,
    ) -> None:
        self._sections, self._folder, self._references = sections, folder, references
        self._cache, self._axes_known = cache, axes_known

    def find(self, reference: Any, section: str, point: GridPoint) -> Parent:
        """Return what the `from` of a section means at a grid point, if it is outside this file."""
        if not isinstance(reference, str) or not reference:
            return Parent()  # the check of the section says what is wrong with it
        if reference in self._sections:  # a cycle, or no mapping: reported there
            return Parent()
        try:
            return self._outside(reference, section, point)
        except SweepError:
            return Parent()  # reported where the reference was first read
        except JoinError as error:
            return Parent(problem=str(error) if self._axes_known else None)
        except (LookupError, CheckpointError) as error:
            return Parent(problem=str(error.args[0]))

    def _outside(self, reference: str, section: str, point: GridPoint) -> Parent:
        """Return what a reference means that names no stage of this file.

        Raises LookupError or CheckpointError if there is no such stage or model, and the SweepError
        of another file.
        """
        if "#" in reference and not reference.startswith(PREFIX):
            stage = self._references.parent(reference, point)
            memo_key = (stage.key, json.dumps(stage.axes, sort_keys=True))
            return Parent(memo_key, stage, ancestors=self._references.ancestors(reference, stage))
        if reference.startswith(PREFIX):
            model = self._cache.get(("hub", reference), lambda: read_hub_model(reference))
            return Parent(model.key, external=model)
        folder = self._folder
        if "/" in reference or os.path.exists(folder / reference):
            key = ("checkpoint", reference, folder)
            model = self._cache.get(key, lambda: read_checkpoint(reference, folder))
            return Parent(model.key, external=model)
        names = [name for name in self._sections if name != section]
        raise LookupError(
            f"no stage named {reference!r} in this file{did_you_mean(reference, names)} "
            f"(allowed: {name_list([*names, OTHER_FORMS])})"
        )
