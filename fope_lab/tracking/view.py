"""What MLflow shows of a sweep: a pure function of its plan and of what the store's folders say.

    outline(plan)        the stages, as JSON that outlives the sweep file
    life(folder)         how far a stage has come, with the true times
    tags, parameters     what a stage is, for filters, groups and the compare page
    points(row)          its metrics

MLflow stores an infinity as 1.8e308, which flattens every chart that shows it. So a value that is
not finite becomes NaN, a gap in the line, and the run's tag `non_finite` says what it was.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fope_lab.store import Row, StageFolder

if TYPE_CHECKING:
    from fope_lab.sweep.plan import Plan

NAME_LENGTH = 250  # MLflow's limits for a metric, parameter or tag
PARAMETER_LENGTH = 6_000
TAG_LENGTH = 1_000  # ours: what still reads as a tag


@dataclass(frozen=True, kw_only=True)
class StageOutline:
    """What MLflow shows of a stage beside its metrics.

    `cached`: the store had it, finished, when the sweep was first planned.
    """

    key: str
    name: str
    stage: str
    kind: str
    config: Mapping[str, Any]
    axes: Mapping[str, Any]
    parents: Mapping[str, str]
    seed: int | None
    embedding: str | None
    scale: str | None
    cached: bool


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What MLflow shows of a plan."""

    name: str
    description: str
    stages: tuple[StageOutline, ...]

    @classmethod
    def of(cls, plan: Plan, cached: Mapping[str, bool]) -> Self:
        """The outline of a plan; `cached` is what is known of stages that were planned before."""
        fields = {entry.name for entry in dataclasses.fields(StageOutline)} - {"cached"}
        stages = []
        for stage in plan.stages:
            raw = {name: getattr(stage, name) for name in fields}
            found = plan.states[stage.key].state == "cached"
            stages.append(raw | {"cached": cached.get(stage.key, found)})
        sweep = {"name": plan.sweep.name, "description": plan.sweep.description}
        return cls.parse(json.dumps(sweep | {"stages": stages}))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The outline that `text` holds, as `json` wrote it."""
        raw = json.loads(text)
        stages = tuple(StageOutline(**stage) for stage in raw["stages"])
        return cls(name=raw["name"], description=raw["description"], stages=stages)

    def json(self) -> str:
        """The outline as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Life:
    """How far a stage has come; equal lives have the same durable rows. Times in ms since 1970."""

    state: str  # running, done, failed or interrupted
    started: int
    ended: int | None
    error: str | None
    checkpoint: Path | None


def life(folder: StageFolder) -> Life | None:
    """How far the stage in `folder` has come, None if nobody ever began it.

    The start is the first attempt's. A stage whose process was killed counts as running until
    somebody goes on with it: only watching its lease for a while could tell.
    """
    started, finished = folder.started_at(), folder.finished_at()
    newest = folder.attempts.newest()
    if finished is not None:
        begun = finished - (folder.seconds() or 0.0) if started is None else started
        left = folder.checkpoint()
        return Life("done", _ms(begun), _ms(finished), None, left.path if left else None)
    if started is None or newest is None:
        return None
    checkpoint = folder.checkpoint()
    path = checkpoint.path if checkpoint else None
    if newest.end is None:
        return Life("running", _ms(started), None, None, path)
    if failure := folder.failure():
        error = str(failure["error"])
        return Life("failed", _ms(started), _ms(failure["time"]), error, path)
    ended = newest.end.get("time")  # not known to a driver that frees the lease of a dead process
    return Life("interrupted", _ms(started), ended and _ms(ended), None, path)


def pictures(life: Life) -> list[Path]:
    """The figures that a stage left, by name."""
    return [] if life.checkpoint is None else sorted(life.checkpoint.glob("*.svg"))


def tags(sweep: str, stage: StageOutline, life: Life) -> dict[str, str]:
    """The tags of a stage's run in the experiment of `sweep`."""
    found = {
        "mlflow.runName": stage.name,
        f"sweep.{sweep}": "true",
        "stage": stage.stage,
        "kind": stage.kind,
        "key": stage.key,
        "embedding": stage.embedding,
        "scale": stage.scale,
        "seed": stage.seed,
        "state": life.state,
        "cached": "true" if stage.cached else "false",
        "error": life.error,
        **{f"axis.{name}": _text(value) for name, value in stage.axes.items()},
        **{f"parent.{role}": key for role, key in stage.parents.items()},
    }
    return {
        _valid_name(name): str(value)[:TAG_LENGTH]
        for name, value in found.items()
        if value is not None
    }


def summary_tags(sweep: str) -> dict[str, str]:
    """The tags of the run that carries the report of `sweep`."""
    return {"mlflow.runName": "summary", _valid_name(f"sweep.{sweep}"): "true", "kind": "summary"}


def parameters(config: Mapping[str, Any]) -> dict[str, str]:
    """A stage's resolved configuration as MLflow's parameters.

    Nested names are joined by dots, lists of objects numbered; other values are JSON, texts bare.
    A value longer than MLflow takes ends in "…".
    """
    found: dict[str, str] = {}
    pending: list[tuple[str, Any]] = list(config.items())
    while pending:
        name, value = pending.pop(0)
        if isinstance(value, Mapping) and value:
            pending += [(f"{name}.{inner}", entry) for inner, entry in value.items()]
        elif isinstance(value, list | tuple) and any(isinstance(v, Mapping) for v in value):
            pending += [(f"{name}.{index}", entry) for index, entry in enumerate(value)]
        else:
            text = _text(value)
            if len(text) > PARAMETER_LENGTH:
                text = text[: PARAMETER_LENGTH - 1] + "…"
            found[_valid_name(name)] = text
    return found


class Point(NamedTuple):
    """One point of a metric, as MLflow keeps it: `timestamp` in ms since 1970."""

    name: str
    step: int
    timestamp: int
    value: float


def points(row: Row) -> list[Point]:
    """The row's metrics as MLflow takes them; what isn't finite becomes NaN."""
    return [
        Point(
            _valid_name(name),
            row.step,
            row.timestamp,
            float(value) if math.isfinite(value) else math.nan,
        )
        for name, value in row.values.items()
    ]


def not_finite(rows: Iterable[Row]) -> str | None:
    """What the NaN points of `rows` were, e.g. "perplexity_by_length=inf at 8192", or None."""
    found = [
        f"{name}={value} at {row.step}"
        for row in rows
        for name, value in row.values.items()
        if not math.isfinite(value)
    ]
    return ", ".join(found)[:TAG_LENGTH] or None


class Digest:
    """A digest of the rows seen so far, to tell whether two lists of rows begin alike."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._digest = hashlib.sha256()
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Go on by one row."""
        self._digest.update(repr((row.step, row.timestamp, sorted(row.values.items()))).encode())

    def hex(self) -> str:
        """The digest so far."""
        return self._digest.hexdigest()


def _valid_name(name: str) -> str:
    """`name` with "_" for every character that MLflow refuses in a name (such as "@")."""
    return re.sub(r"[^\w\-./ :]", "_", name)[:NAME_LENGTH]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
