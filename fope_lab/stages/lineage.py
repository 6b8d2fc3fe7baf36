"""Which stages a model went through. stage.yaml records it, so that nobody has to search for it."""

from __future__ import annotations

from pathlib import Path

from fope_lab.data.roles import candidate_role
from fope_lab.stages.internal import SELECTED, Select
from fope_lab.store import StageFolder

LINEAGE = "lineage"
"""The field of stage.yaml: the folders `kind/key` of the stages that the model which a stage starts
from went through, oldest first; of stages in another store their whole paths."""


def lineage_of(folder: StageFolder | None) -> list[StageFolder]:
    """The stages that a stage's model went through, oldest first, itself the last. A selection goes
    on from the candidate that it chose. A folder that no stage wrote has none."""
    request = None if folder is None else folder.request()
    if folder is None or request is None:
        return []
    root = folder.path.parents[1]
    if request.get("kind") != Select.kind:
        return [*(StageFolder(root / path) for path in request.get(LINEAGE, ())), folder]
    try:
        chosen = (folder.result() or {})["recorded"][SELECTED]["index"]
        key = request["parents"][candidate_role(chosen, request["config"]["seed"])]
    except (KeyError, TypeError):  # it has not chosen yet
        return [folder]
    candidates = map(StageFolder, root.glob(f"*/{key}"))
    return [*(each for candidate in candidates for each in lineage_of(candidate)), folder]


def recorded_lineage(parent: StageFolder | None, root: Path) -> list[str]:
    """What a stage of the store at `root` records that starts from the model of `parent`."""
    paths = [each.path for each in lineage_of(parent)]
    return [str(path.relative_to(root) if path.is_relative_to(root) else path) for path in paths]
