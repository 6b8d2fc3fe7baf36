"""How far each stage of a plan is, and what the store holds of it, read once for a whole report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from fope_lab.store import Row, StageFolder, Store
    from fope_lab.sweep.plan import Plan
    from fope_lab.sweep.resolve import Stage

State = Literal["done", "failed", "unfinished", "blocked", "not run"]
STATES: tuple[State, ...] = ("done", "failed", "unfinished", "blocked", "not run")


@dataclass(frozen=True)
class StageResult:
    """One stage and all that a report needs of its folder."""

    stage: Stage
    folder: Path
    state: State
    reason: str  # why it is not done; "" if it is
    rows: tuple[Row, ...]  # durable rows only
    recorded: Mapping[str, Any]  # its result.json; {} unless done
    seconds: float | None
    started: float | None  # seconds since the epoch
    finished: float | None
    train_length: int | None  # length of the data that this stage's model was last trained on


def read_stages(plan: Plan, store: Store) -> tuple[StageResult, ...]:
    """Read every stage of `plan`, parents before children."""
    by_key: dict[str, StageResult] = {}
    for stage in plan.stages:
        parents = {r: by_key[key] for r, key in stage.parents.items() if key in by_key}
        by_key[stage.key] = _read(stage, store.folder(stage.kind, stage.key), parents)
    return tuple(by_key.values())


def _read(stage: Stage, folder: StageFolder, parents: Mapping[str, StageResult]) -> StageResult:
    state, reason = _state(folder, parents)
    return StageResult(
        stage=stage,
        folder=folder.path,
        state=state,
        reason=reason,
        rows=tuple(folder.rows()),
        recorded=folder.result() or {},
        seconds=folder.seconds(),
        started=folder.started_at(),
        finished=folder.finished_at(),
        train_length=_train_length(stage, parents.get("from")),
    )


def _train_length(stage: Stage, origin: StageResult | None) -> int | None:
    data = stage.config.get("data")
    if isinstance(data, Mapping):
        return int(data["length"])
    if origin is not None:
        return origin.train_length
    return stage.model_spec.train_length if stage.model_spec else None  # from a checkpoint's folder


def _state(folder: StageFolder, parents: Mapping[str, StageResult]) -> tuple[State, str]:
    if folder.is_done():
        return "done", ""
    failure = folder.failure()
    if failure is not None:
        lines = str(failure.get("error", "")).strip().splitlines()
        return "failed", lines[0] if lines else "no message was recorded"
    for state in ("failed", "blocked"):
        culprit = next((p for p in parents.values() if p.state == state), None)
        if culprit is not None:
            return "blocked", f"{culprit.stage.label} is {culprit.state}"
    progress = folder.progress()
    if progress is not None:
        return "unfinished", f"reached step {progress.get('step')} of {progress.get('total')}"
    if folder.attempts.newest_token():
        return "unfinished", "was begun, no progress recorded"
    waiting = next((p for p in parents.values() if p.state != "done"), None)
    return "not run", f"waits for {waiting.stage.label}" if waiting else "was not begun"
