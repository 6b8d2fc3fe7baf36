"""What MLflow shows of a sweep: a pure function of its plan and the store's folders.

    Outline.of(plan)     the stages, as JSON that does not need the sweep file
    timeline(folder)     when a stage began and ended, and how
    tags                 the description of a stage, for filters and groups

names.py has the names of the runs, parameters.py and points.py their parameters and metrics.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fope_lab.provenance.checkout import Checkout
from fope_lab.store import StageFolder, Status
from fope_lab.store.time_taken import TimeTaken, over_attempts
from fope_lab.sweep.plan import Plan
from fope_lab.tracking.cell_keys import cell_keys
from fope_lab.tracking.line_colours import CURVE, curve_tags
from fope_lab.tracking.names import line_names, run_names

SUMMARY = "summary"
"""The kind and the name of the run that holds a sweep's report."""
CELL = "cell"
"""The kind of the runs that hold means over seeds."""
EDITION, CURRENT, EARLIER = "edition", "current", "earlier"
"""The tag that says whether a run belongs to the sweep as its file is now, and its values.

When a stage is edited or dropped, the run of what it was stays, and counts as earlier.
"""
LINE = "line"
"""The tag with the name of the line that charts draw for all seeds."""
TIME = "time"
"""The tag of a finished stage that says how long its attempts took."""
NAME_LENGTH = 250
"""MLflow's limit for the name of a metric, parameter or tag, in characters."""
TAG_LENGTH = 1_000
"""Our limit for the value of a tag, in characters, so that it stays readable."""
STORED_AS = {"label": "name", "section": "stage"}
"""The fields of a StageOutline that JSON has under another name."""
STAGE_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(("key", "label", "section", "kind"), str),
    **dict.fromkeys(("config", "axes", "parents"), dict),
    **{"seed": int | None, "embedding": str | None, "scale": str | None, "cached": bool},
}
"""The types of the fields of a StageOutline."""


@dataclass(frozen=True, kw_only=True)
class StageOutline:
    """What MLflow shows of a stage besides its metrics.

    `cached` says whether the store already had the finished stage when the sweep was first planned.
    """

    key: str
    label: str
    section: str
    kind: str
    config: Mapping[str, Any]
    axes: Mapping[str, Any]
    parents: Mapping[str, str]
    seed: int | None
    embedding: str | None
    scale: str | None
    cached: bool

    @classmethod
    def read(cls, raw: Any) -> Self | None:
        """The outline of a stage in a JSON value, or None if it has another shape."""
        if not isinstance(raw, dict):
            return None
        found: dict[str, Any] = {name: raw.get(STORED_AS.get(name, name)) for name in STAGE_FIELDS}
        shaped = all(isinstance(found[name], kinds) for name, kinds in STAGE_FIELDS.items())
        if not shaped or not all(isinstance(key, str) for key in found["parents"].values()):
            return None
        return cls(**found)


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What MLflow shows of a plan besides metrics: its name, description, file and stages.

    An outline that an old version recorded names no file.
    """

    name: str
    description: str
    file: str
    stages: tuple[StageOutline, ...]

    @functools.cached_property
    def names(self) -> Mapping[str, str]:
        """The names of the stages' runs, by key."""
        return run_names(self.stages)

    @functools.cached_property
    def cell_keys(self) -> Mapping[str, str]:
        """The keys of the cells of the report that the stages belong to, by the stages' keys."""
        return cell_keys(self.stages)

    @functools.cached_property
    def lines(self) -> Mapping[str, str]:
        """The names of the lines that charts draw of stages, by the stages' keys.

        All seeds of a cell have one line. Stages without an embedding have none.
        """
        drawn = [stage for stage in self.stages if stage.embedding is not None]
        firsts: dict[str, StageOutline] = {}
        for stage in drawn:
            key = self.cell_keys[stage.key]
            firsts.setdefault(key, dataclasses.replace(stage, key=key, label="", seed=None))
        names = line_names(firsts.values())
        return {stage.key: names[self.cell_keys[stage.key]] for stage in drawn}

    @functools.cached_property
    def curves(self) -> Mapping[str, str]:
        """The tags by which charts draw and colour the lines of stages, by the stages' keys."""
        sections: dict[str, dict[str, str]] = {}
        for stage in self.stages:
            if stage.key in self.lines:
                sections.setdefault(stage.section, {})[stage.key] = self.lines[stage.key]
        found: dict[str, str] = {}
        for lines in sections.values():
            tags = curve_tags(lines.values())
            found |= {key: tags[line] for key, line in lines.items()}
        return found

    @classmethod
    def of(cls, plan: Plan, cached: Mapping[str, bool]) -> Self:
        """The outline of a plan; `cached` holds, by key, what was recorded for stages before."""
        own = [name for name in STAGE_FIELDS if name != "cached"]
        stages = []
        for stage in plan.sweep.stages:
            raw = {STORED_AS.get(name, name): getattr(stage, name) for name in own}
            is_cached = plan.states[stage.key].is_done
            stages.append(raw | {"cached": cached.get(stage.key, is_cached)})
        sweep = {
            "name": plan.sweep.name,
            "description": plan.sweep.description,
            "file": str(plan.sweep.path),
        }
        outline = cls.read(json.loads(json.dumps(sweep | {"stages": stages})))
        assert outline is not None
        return outline

    @classmethod
    def read(cls, raw: Any) -> Self | None:
        """The outline in a JSON value that `json` wrote, or None if it has another shape."""
        if not isinstance(raw, dict) or not isinstance(raw.get("stages"), list):
            return None
        texts: dict[str, Any] = {name: raw.get(name) for name in ("name", "description")}
        texts["file"] = raw.get("file", "")
        if not all(isinstance(text, str) for text in texts.values()):
            return None
        found = [StageOutline.read(stage) for stage in raw["stages"]]
        stages = tuple(stage for stage in found if stage is not None)
        if len(stages) < len(found):
            return None
        return cls(**texts, stages=stages)

    def json(self) -> str:
        """The outline as JSON text, which `parse` reads."""
        raw = dataclasses.asdict(self)
        stages = [{STORED_AS.get(k, k): v for k, v in stage.items()} for stage in raw["stages"]]
        return json.dumps(raw | {"stages": stages}, indent=1, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class StageTimeline:
    """When a stage began and ended (in ms since 1970), how, and its newest checkpoint.

    Two equal ones have the same durable rows, since rows become durable with a checkpoint.
    """

    status: Status
    started: int
    ended: int | None
    error: str | None
    checkpoint: Path | None


def timeline(folder: StageFolder) -> StageTimeline | None:
    """The timeline of the stage in `folder`, or None if it was never started, or is to start again.

    A stage starts with its first attempt. A stage whose process was killed counts as running until
    it is resumed, because only watching its lease for a while would show the difference.
    """
    state = folder.state()
    path = state.checkpoint.path if state.checkpoint else None
    started, finished = folder.started_at(), folder.finished_at()
    if finished is not None:
        taken = folder.time_taken()
        begun = started or finished - (taken.seconds if taken else 0.0)
        return StageTimeline(Status.DONE, _ms(begun), _ms(finished), None, path)
    if started is None or state.attempt is None or state.status is Status.NOT_STARTED:
        return None
    end = state.attempt.end or {}
    ended = end.get("time")  # None while it runs
    error = str(end.get("error") or state.reason) if state.status is Status.FAILED else None
    return StageTimeline(state.status, _ms(started), ended and _ms(ended), error, path)


def pictures(stage_timeline: StageTimeline) -> list[Path]:
    """The paths of a stage's figures, sorted by name."""
    return (
        [] if stage_timeline.checkpoint is None else sorted(stage_timeline.checkpoint.glob("*.svg"))
    )


def tags(outline: Outline, stage: StageOutline, stage_timeline: StageTimeline) -> dict[str, str]:
    """The tags of a stage's run in the experiment of the sweep."""
    own = {
        "mlflow.runName": outline.names[stage.key],
        "label": stage.label,
        "kind": stage.kind,
        "key": stage.key,
        "seed": stage.seed,
        "state": stage_timeline.status,
        "cached": "true" if stage.cached else "false",
        "error": stage_timeline.error,
        **{f"parent.{role}": key for role, key in stage.parents.items()},
    }
    return stage_tags(outline, stage, own)


def stage_tags(outline: Outline, stage: StageOutline, own: Mapping[str, Any]) -> dict[str, str]:
    """A run's `own` tags, and those that it shares with the runs of other seeds of `stage`."""
    values = {
        "mlflow.source.name": outline.file or None,
        "mlflow.source.type": "LOCAL" if outline.file else None,
        f"sweep.{outline.name}": "true",
        "stage": stage.section,
        "embedding": stage.embedding,
        "scale": stage.scale,
        LINE: outline.lines.get(stage.key),
        CURVE: outline.curves.get(stage.key),
        EDITION: CURRENT,
        **{f"axis.{name}": as_text(value) for name, value in stage.axes.items()},
        **own,
    }
    return {
        valid_name(name): str(value)[:TAG_LENGTH]
        for name, value in values.items()
        if value is not None
    }


def code_tags(makers: Sequence[Mapping[str, Any]], changed: Sequence[str]) -> dict[str, str]:
    """The tags that say which code a finished stage ran with, and what has changed since.

    `commit` has `+` if the code differed from the commit. A stage that ran with several commits has
    all of them, beginning with the one that finished it.
    """
    checkouts = (Checkout.recorded(made_by) for made_by in makers)
    commits = dict.fromkeys(str(checkout) for checkout in checkouts if checkout is not None)
    values = {
        "commit": ", ".join(commits),
        "mlflow.source.git.commit": next(iter(commits), "").removesuffix("+"),
        "changed_since": ", ".join(changed),
    }
    return {name: value[:TAG_LENGTH] for name, value in values.items() if value}


def time_tags(taken: TimeTaken | None) -> dict[str, str]:
    """The tag that says how long a finished stage took, such as "12 s over 3 attempts".

    MLflow's own duration of a run includes the pauses between the attempts.
    """
    if taken is None:
        return {}
    return {TIME: over_attempts(f"{taken.seconds:.0f} s", taken.attempts)}


def summary_tags(sweep: str) -> dict[str, str]:
    """The tags of the run that holds the report of `sweep`."""
    own = {"mlflow.runName": SUMMARY, "kind": SUMMARY, EDITION: CURRENT}
    return own | {valid_name(f"sweep.{sweep}"): "true"}


def metric_path(parts: Iterable[str]) -> str:
    """The name of a metric with these parts; MLflow groups charts by what precedes the last "/".

    Characters that MLflow refuses, and "/" inside a part, become spaces.
    """
    words = (re.sub(r"[^\w\-. ]", " ", part) for part in parts)
    return "/".join(" ".join(word.split()) for word in words)


def valid_name(name: str) -> str:
    """`name` with "_" for every character that MLflow refuses in a name (such as "@")."""
    return re.sub(r"[^\w\-./ :]", "_", name)[:NAME_LENGTH]


def as_text(value: Any) -> str:
    """A value as JSON, except for plain text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
