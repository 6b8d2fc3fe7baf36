"""All that a store knows of one stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.housekeeping.contents import files_with_sizes
from fope_lab.housekeeping.known_stages import KnownStage, known_stages
from fope_lab.housekeeping.references import parents_of, references
from fope_lab.provenance.checkout import Checkout
from fope_lab.store import StageState, Store
from fope_lab.store.lease import AttemptRecord
from fope_lab.store.observation import observe
from fope_lab.store.time_taken import TimeTaken, attempt_seconds


@dataclass(frozen=True)
class StageDetails:
    """A stage with the names that sweeps gave it, what it was asked, its past and its relatives.

    `seconds` has the time of each attempt by its token, and `time_taken` that of a finished stage.
    `parents` has the key of each parent by role, or the folder of a checkpoint, and `children` the
    stages that refer to this one. `titles` names stages by key. `files` has the bytes of each file
    by its path from the folder, the largest first.
    """

    stage: KnownStage
    names: tuple[KnownStage, ...]
    state: StageState
    config: Mapping[str, Any]
    attempts: tuple[AttemptRecord, ...]
    seconds: Mapping[int, float]
    time_taken: TimeTaken | None
    parents: Mapping[str, str]
    children: tuple[str, ...]
    titles: Mapping[str, str]
    files: Mapping[Path, int]


def stage_details(store: Store, stage: KnownStage) -> StageDetails:
    """Look at everything that concerns a stage. This takes a moment if it is marked as running."""
    known = known_stages(store)
    folder = stage.folder
    [state] = observe([folder])
    asked = (folder.request() or {}).get("config")
    attempts = folder.attempts
    found = map(attempts.record, range(1, attempts.newest_token() + 1))
    records = tuple(record for record in found if record is not None)
    refers = references(store, known)
    files = files_with_sizes(folder.path) if folder.path.is_dir() else ()
    return StageDetails(
        stage=stage,
        names=tuple(one for one in known if one.key == stage.key and one.sweep),
        state=state,
        config=asked if isinstance(asked, dict) else {},
        attempts=records,
        seconds={record.token: attempt_seconds(attempts, record) for record in records},
        time_taken=folder.time_taken(),
        parents=parents_of(folder) or stage.parents,
        children=tuple(key for key, parents in refers.items() if stage.key in parents),
        titles={one.key: one.title for one in reversed(known)},
        files={
            path.relative_to(folder.path): size
            for path, size in sorted(files, key=lambda file: (-file[1], file[0]))
        },
    )


def made_with(attempt: AttemptRecord) -> list[str]:
    """The machine, device, driver and commit of an attempt, as far as it recorded them."""
    details = attempt.details
    made_by = details.get("made_by") or {}
    commit = Checkout.recorded(made_by)
    words = {
        "on": details.get("host"),
        "device": made_by.get("device"),
        "commit": None if commit is None else str(commit),
        "driver": attempt.owner,
    }
    return [f"{name} {value}" for name, value in words.items() if value]
