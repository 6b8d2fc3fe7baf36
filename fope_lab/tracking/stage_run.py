"""What the run of a stage says: its status and times, tags, parameters and datasets.

The parameters are the resolved configuration, flattened, and whatever varies in the model that a
stage makes or reads: so MLflow's lists sort evaluations by the learning rate of their models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fope_lab.config.roles import MODEL, text_role, validation_role
from fope_lab.stages.base import STAGE_TYPES
from fope_lab.stages.internal import Select
from fope_lab.stages.labels import label
from fope_lab.store.attempts import over_attempts
from fope_lab.store.checkout import Checkout
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.store.state import Status
from fope_lab.sweep.plan import output_digest
from fope_lab.tracking.outline import Outline, StageOutline

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
