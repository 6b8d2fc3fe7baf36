"""A model's lineage: the stages that it went through, as stage.yaml records them."""

from __future__ import annotations

from pathlib import Path

from fope_lab.config.roles import chosen_role, is_candidate
from fope_lab.store.folder import StageFolder

LINEAGE = "lineage"
"""The field of stage.yaml with the lineage of the model that a stage starts from: `kind/key` of
each stage, oldest first, or the path of one in another store."""


def lineage_of(folder: StageFolder | None) -> list[StageFolder]:
    """Read the lineage of a stage's model, oldest first; the last is the stage itself.

    A selection goes on from the candidate that it chose. A folder that no stage wrote has none.
    """
    request = None if folder is None else folder.request()
    if folder is None or request is None:
        return []
    root, parents = folder.path.parents[1], request.get("parents")
    if not (isinstance(parents, dict) and any(map(is_candidate, parents))):
        recorded = request.get(LINEAGE)
        before = recorded if isinstance(recorded, list) else []
        return [*(StageFolder(root / str(path)) for path in before), folder]
    try:
        chosen = chosen_role(folder.result()["recorded"], request["config"]["seed"])  # type: ignore[index]
        key = parents[chosen]
    except (AttributeError, KeyError, TypeError):  # it has not chosen yet
        return [folder]
    candidates = map(StageFolder, root.glob(f"*/{key}"))
    return [*(each for candidate in candidates for each in lineage_of(candidate)), folder]


def recorded_lineage(parent: StageFolder | None, root: Path) -> list[str]:
    """The lineage of a stage that starts from the model of `parent`, as its stage.yaml in the store
    at `root` has it."""
    paths = [each.path for each in lineage_of(parent)]
    return [str(path.relative_to(root) if path.is_relative_to(root) else path) for path in paths]
