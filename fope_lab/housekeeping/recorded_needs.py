"""Which stages the sweeps ask for that a store has recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fope_lab.config.problems import UserError
from fope_lab.housekeeping.references import referred
from fope_lab.store import Store
from fope_lab.store.sweep_files import SweepFiles
from fope_lab.sweep import load_sweep
from fope_lab.tracking.ledger import damaged_plans, recorded_sweeps


@dataclass(frozen=True)
class RecordedNeeds:
    """The keys that recorded sweeps ask for, with the keys that each refers to.

    A sweep asks for the stages that it had when it last ran, and for those of its file as it is
    today. `notes` say what could not be read, each in one line. `is_known` is false if nobody can
    tell what is asked for: then every stage may be needed.
    """

    references: Mapping[str, frozenset[str]]
    notes: tuple[str, ...]
    is_known: bool


def recorded_needs(store: Store) -> RecordedNeeds:
    """What the sweeps ask for that ran in a store."""
    found: dict[str, set[str]] = {}
    notes = [f"{path} is damaged" for path in damaged_plans(store)]
    sweeps = recorded_sweeps(store)
    is_known = bool(sweeps) and not notes
    for sweep in sweeps:
        for stage in sweep.stages:
            found.setdefault(stage.key, set()).update(stage.parents.values())
        path = SweepFiles(store.root).of(sweep.name)
        if path is None or not path.is_file():
            continue
        try:
            today = load_sweep(path, store)
        except UserError:
            notes.append(f"{path} has errors: its stages are those of its last run")
            continue
        for own in today.stages:
            parents = {*own.parents.values(), *own.checkpoints.values()}
            found.setdefault(own.key, set()).update(referred(store, parents))
    references = {key: frozenset(parents) for key, parents in found.items()}
    return RecordedNeeds(references, tuple(notes), is_known)
