"""Which stages of a store others refer to as their parents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from fope_lab.housekeeping.known_stages import KnownStage
from fope_lab.store import StageFolder, Store

References = Mapping[str, frozenset[str]]
"""The keys of the stages that each stage refers to, by its key."""


def references(store: Store, stages: Iterable[KnownStage]) -> References:
    """What the stages refer to, as their sweeps and their own records say."""
    found: dict[str, set[str]] = {}
    for stage in stages:
        parents = found.setdefault(stage.key, set())
        recorded = parents_of(stage.folder)
        parents |= referred(store, {*stage.parents.values(), *recorded.values()})
    return {key: frozenset(parents) for key, parents in found.items()}


def parents_of(folder: StageFolder) -> dict[str, str]:
    """The keys of a stage's parents by role, as it was asked for; or the folder of a checkpoint."""
    parents = (folder.request() or {}).get("parents")
    if not isinstance(parents, dict):
        return {}
    return {str(role): of for role, of in parents.items() if isinstance(of, str)}


def referred(store: Store, parents: Iterable[str]) -> set[str]:
    """The keys of parents, each of which is a key or the folder of a checkpoint.

    A checkpoint in this store is that of a stage, and others are of no stage.
    """
    return {key for parent in parents if (key := _key(store, parent)) is not None}


def _key(store: Store, parent: str) -> str | None:
    if "/" not in parent:
        return parent
    try:
        inside = Path(parent).resolve().relative_to(store.root.resolve())
    except ValueError:
        return None
    return inside.parts[1] if len(inside.parts) > 1 else None


def with_ancestors(keys: Iterable[str], references: References) -> set[str]:
    """The keys, and all that they refer to, directly or through others."""
    found: set[str] = set()
    pending = list(keys)
    while pending:
        key = pending.pop()
        if key not in found:
            found.add(key)
            pending += references.get(key, ())
    return found
