"""What the run of a stage says: its status and times, tags and parameters, and its metrics.

The parameters are the resolved configuration, flattened, and whatever varies in the model that a
stage makes or reads: so MLflow's lists sort evaluations by the learning rate of their models.

The metrics are the rows that a stage logs, then its result. MLflow's lists and its compare page
know the last value of a metric alone. So each point of a curve over lengths is also a metric of its
own: perplexity_by_length at 64 is perplexity/64, too. MLflow stores an infinity as 1.8e308, which
flattens every chart that shows it. So a value that is not finite becomes NaN, a gap in the line,
and the run's tag `non_finite` names the value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fope_lab.config.roles import MODEL, text_role, validation_role
from fope_lab.stages.base import STAGE_TYPES
from fope_lab.stages.internal import Select
from fope_lab.stages.labels import label
from fope_lab.stages.metric import LENGTH, WORDS, DamagedResultError, ResultRecord
from fope_lab.store.attempts import over_attempts
from fope_lab.store.checkout import Checkout
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.store.state import Status
from fope_lab.store.writer import Row
from fope_lab.sweep.plan import output_digest
from fope_lab.tracking.names import StageOutline
from fope_lab.tracking.outline import Outline

SUMMARY = "summary"
"""The kind and the name of the run that holds a sweep's report."""
EDITION, CURRENT, EARLIER = "edition", "current", "earlier"
"""The tag that says whether the sweep, as its file is now, still has the stage of a run."""
LINE = "line"
"""The tag with the name of the line that charts draw for all seeds."""
TIME = "time"
"""The tag of a finished stage that says how long its attempts took."""
CHECKPOINT = "checkpoint"
"""The tag of a model, and of the run that made it: the checkpoint's folder."""
MODEL_ID = "model_id"
"""The tag of a run that started from a model or measured it: the model's id in MLflow."""
NAME_LENGTH, PARAMETER_LENGTH, DIGEST_LENGTH, DATASET_LENGTH = 250, 6_000, 36, 500
"""MLflow's limits for the name of a metric, parameter or tag, for the value of a parameter, and for
the digest and the name of a dataset."""
TAG_LENGTH = 1_000
"""Our limit for the value of a tag, in characters, so that it stays readable."""
TRAINING, VALIDATION = text_role(0).partition(".")[0], validation_role(0).partition(".")[0]

LISTED_AXES = (LENGTH.name, WORDS.name)
"""The axes whose curves have few points; those over positions have too many for a list."""
PointId = tuple[str, int, int]
"""The name, step and timestamp of a point, which identify it within a run: the value follows."""
ERRORS = ("_stderr", "_ci95_low", "_ci95_high", "_n")
"""The ends of the names of metrics that say how sure another metric is, as in loss_stderr and in
perplexity_stderr/64."""
Stages = Mapping[str, StageOutline]
"""The stages of a sweep, by key."""


@dataclass(frozen=True)
class Timeline:
    """When a stage began and ended (in ms since 1970), how, and its newest checkpoint.

    Two equal ones have the same durable rows, since rows become durable with a checkpoint.
    """

    status: Status
    started: int
    ended: int | None
    error: str | None
    checkpoint: Path | None

    @property
    def completed(self) -> int | None:
        """When the stage ended well, if it has."""
        return self.ended if self.status is Status.DONE else None

    @property
    def failed(self) -> int | None:
        """When the stage failed, if it has."""
        return self.ended if self.status is Status.FAILED else None


def timeline(folder: StageFolder) -> Timeline | None:
    """The timeline of the stage in `folder`, or None if it was never started, or is to start again.

    A stage whose process was killed counts as running: only watching its lease would tell.
    """
    state = folder.state()
    path = state.checkpoint.path if state.checkpoint else None
    started, finished = folder.started_at(), folder.finished_at()
    if finished is not None:
        taken = folder.time_taken()
        begun = started or finished - (taken.seconds if taken else 0.0)
        return Timeline(Status.DONE, _ms(begun), _ms(finished), None, path)
    if started is None or state.attempt is None or state.status is Status.NOT_STARTED:
        return None
    end = state.attempt.end or {}
    ended = end.get("time")  # None while it runs
    error = str(end.get("error") or state.reason) if state.status is Status.FAILED else None
    return Timeline(state.status, _ms(started), ended and _ms(ended), error, path)


def tags(outline: Outline, stage: StageOutline, at: Timeline) -> dict[str, str]:
    """The tags of a stage's run in the experiment of the sweep."""
    return _texts(
        {
            "mlflow.runName": outline.names[stage.key],
            "mlflow.source.name": outline.file,
            "mlflow.source.type": "LOCAL",
            f"sweep.{outline.name}": "true",
            "stage": stage.section,
            "label": stage.label,
            "kind": stage.kind,
            "key": stage.key,
            "seed": stage.seed,
            "embedding": stage.embedding,
            "scale": stage.scale,
            LINE: outline.lines.get(stage.key),
            EDITION: CURRENT,
            "state": at.status,
            "cached": "true" if stage.cached else "false",
            "error": at.error,
            **{f"axis.{name}": as_text(value) for name, value in stage.axes.items()},
            **{f"parent.{role}": key for role, key in stage.parents.items()},
        }
    )


def made_tags(folder: StageFolder, changed: Sequence[str]) -> dict[str, str]:
    """The tags that say how long a finished stage took, without the pauses between attempts, the
    commits that it ran with, the newest first, and what of its code has changed since."""
    commits = dict.fromkeys(map(str, filter(None, map(Checkout.recorded, folder.makers()))))
    taken = folder.time_taken()
    return _texts(
        {
            "commit": ", ".join(commits) or None,
            "mlflow.source.git.commit": next(iter(commits), "").removesuffix("+") or None,
            "changed_since": ", ".join(changed) or None,
            TIME: taken and over_attempts(f"{taken.seconds:.0f} s", taken.attempts),
        }
    )


def summary_tags(sweep: str) -> dict[str, str]:
    """The tags of the run that holds the report of `sweep`."""
    own = {"mlflow.runName": SUMMARY, "kind": SUMMARY, EDITION: CURRENT}
    return own | {valid_name(f"sweep.{sweep}"): "true"}


def parameters(stage: StageOutline, stages: Stages) -> dict[str, str]:
    """The parameters of a stage; the axes of the sweep go by their paths."""
    return flat(_axes(stage)) | flat(stage.config) | flat(_of_model(stage, stages))


def model_parameters(stage: StageOutline, stages: Stages) -> dict[str, str]:
    """The parameters of the model that a stage leaves: what varies, without the configuration."""
    tokens = _field(_training(stage, stages)[0], "train", "tokens")
    own = {"key": stage.key, "stage": stage.section, "tokens": tokens}
    return flat(_axes(stage) | _of_model(stage, stages) | _without_none(own))


def _axes(stage: StageOutline) -> dict[str, str]:
    return {axis: label(value) for axis, value in stage.axes.items()}


def _of_model(stage: StageOutline, stages: Stages) -> dict[str, Any]:
    """What varies in the model that a stage makes or reads, but for what a selection chooses."""
    training, chosen = _training(stage, stages)
    values = {
        "embedding": stage.embedding,
        "scale": stage.scale,
        "seed": stage.seed,
        "train_length": _field(training, "data", "length"),
        "learning_rate": _field(training, "train", "learning_rate"),
    }
    return {name: of for name, of in _without_none(values).items() if name not in chosen}


def flat(config: Mapping[str, Any]) -> dict[str, str]:
    """Nested values as MLflow's parameters: dotted names, and values as JSON except for text.

    Entries of a list of mappings are numbered. A value that is too long for MLflow ends in "…".
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
            text = as_text(value)
            is_long = len(text) > PARAMETER_LENGTH
            found[valid_name(name)] = f"{text[: PARAMETER_LENGTH - 1]}…" if is_long else text
    return found


def _training(stage: StageOutline, stages: Stages) -> tuple[Mapping[str, Any], set[str]]:
    """The configuration of the last training of a stage's model, if the sweep has it, and the
    settings of it that a selection chose, where it is that of the first candidate."""
    chosen, of = set[str](), stage
    while "train" not in of.config:
        parents: Iterable[str] = [of.parents.get(MODEL, "")]
        if of.kind == Select.kind:
            chosen.add(str(of.config.get("over")).rpartition(".")[2])
            parents = of.parents.values()
        parent = next((stages[key] for key in parents if key in stages), None)
        if parent is None:
            return {}, chosen
        of = parent
    return of.config, chosen


def _field(config: Mapping[str, Any], section: str, name: str) -> Any:
    found = config.get(section)
    return found.get(name) if isinstance(found, Mapping) else None


class Dataset(NamedTuple):
    """A dataset of a run: `context` is its purpose, `place` its folder in the store."""

    name: str
    digest: str
    context: str
    place: str


def datasets(stage: StageOutline, stages: Stages, store: Store) -> list[Dataset]:
    """The prepared data that a stage reads, by the digest of their tokens, if they are there."""
    trains = "train" in stage.config
    contexts = {TRAINING: "training" if trains else "evaluation", VALIDATION: "validation"}
    found = []
    for role, key in stage.parents.items():
        context, parent = contexts.get(role.partition(".")[0]), stages.get(key)
        if context is None or parent is None:
            continue
        digest = output_digest(store.folder(parent.kind, key))
        if digest is not None:
            name = parent.label.removeprefix(f"{parent.section}[").removesuffix("]")
            place = f"{parent.kind}/{key}"
            found.append(Dataset(name[:DATASET_LENGTH], digest[:DIGEST_LENGTH], context, place))
    return found


def leaves_model(stage: StageOutline) -> bool:
    """Whether a stage makes a model, rather than reading one."""
    kinds = STAGE_TYPES.all()
    return stage.kind in kinds and kinds[stage.kind].leaves_model


def reads_same_model(stage: StageOutline, stages: Stages, store: Store) -> bool:
    """Whether the model that a finished stage read is still there as it was, as far as is known."""
    read = store.folder(stage.kind, stage.key).parents_read().get(MODEL)
    parent = stages.get(stage.parents.get(MODEL, ""))
    if read is None or parent is None:
        return True
    return output_digest(store.folder(parent.kind, parent.key)) in (None, read)


class Point(NamedTuple):
    """A point of a metric as MLflow stores it; `timestamp` is in ms since 1970."""

    name: str
    step: int
    timestamp: int
    value: float

    @property
    def id(self) -> PointId:
        return self.name, self.step, self.timestamp


def points(row: Row, curves: Mapping[str, str]) -> list[Point]:
    """The metrics of a row as points; a value that is not finite becomes NaN.

    `curves` has the axis of each metric that is a curve.
    """
    found = []
    for name, value in row.values.items():
        number = float(value) if math.isfinite(value) else math.nan
        found.append(Point(valid_name(name), row.step, row.timestamp, number))
        if (axis := curves.get(name)) in LISTED_AXES:
            listed = f"{name.removesuffix(f'_by_{axis}')}/{row.step}"
            found.append(Point(valid_name(listed), 0, row.timestamp, number))
    return found


def result_rows(content: Mapping[str, Any], rows: Sequence[Row], timestamp: int) -> list[Row]:
    """The numbers of a result.json that `rows` lack, as rows with the given timestamp in ms.

    These are 95 % intervals, NAME_ci95_low and NAME_ci95_high, and numbers that are known only at
    the end. The step is the x of a curve, else the last one that the rows have for the name, or 0.
    """
    try:
        measured = ResultRecord.parse(content).metrics
    except DamagedResultError:
        return []
    last_steps = {name: row.step for row in rows for name in row.values}
    present = {(name, row.step) for row in rows for name in row.values}
    by_step: dict[int, dict[str, float]] = {}
    for measurement in measured:
        step = measurement.x
        if step is None:
            step = last_steps.get(measurement.name, 0)
        columns = dict(measurement.row)
        if measurement.ci95 is not None:
            ends = (f"{measurement.name}_ci95_low", f"{measurement.name}_ci95_high")
            columns |= zip(ends, measurement.ci95, strict=True)
        for name, value in columns.items():
            if (name, step) not in present:
                by_step.setdefault(step, {})[name] = value
    return [Row(step, timestamp, values) for step, values in by_step.items()]


def measured_points(rows: Iterable[Row], curves: Mapping[str, str]) -> list[Point]:
    """What an evaluation says of its model: the last value of each metric but whole curves.

    A value that is not finite is left out, because MLflow stores NaN of a model as 0. The machine's
    load is left out, too.
    """
    last = {point.name: point for row in rows for point in points(row, curves)}
    whole = tuple(f"{curve}{end}" for curve in curves for end in ("", *ERRORS))
    return [
        point
        for name, point in last.items()
        if name not in whole and not name.startswith("system/") and math.isfinite(point.value)
    ]


def not_finite(rows: Iterable[Row]) -> str | None:
    """The values that are not finite, such as "perplexity_by_length=inf at 8192", or None."""
    found = [
        f"{name}={value} at {row.step}"
        for row in rows
        for name, value in row.values.items()
        if not math.isfinite(value)
    ]
    return ", ".join(found)[:TAG_LENGTH] or None


def metric_path(parts: Iterable[str]) -> str:
    """The name of a metric with these parts; what MLflow refuses, and "/" in a part, is a space."""
    words = (re.sub(r"[^\w\-. ]", " ", part) for part in parts)
    return "/".join(" ".join(word.split()) for word in words)


def valid_name(name: str) -> str:
    """`name` with "_" for every character that MLflow refuses in a name (such as "@")."""
    return re.sub(r"[^\w\-./ :]", "_", name)[:NAME_LENGTH]


def as_text(value: Any) -> str:
    """A value as JSON, except for plain text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as tags; those that are None are left out."""
    return {valid_name(name): str(of)[:TAG_LENGTH] for name, of in _without_none(values).items()}


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
