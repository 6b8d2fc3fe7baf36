"""The parameters of a stage's run, by which MLflow's lists filter and its compare page compares.

They are the resolved configuration of the stage, flattened, and whatever varies in the model that
it makes or reads: a list then sorts evaluations by the learning rate of their models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.data.roles import MODEL
from fope_lab.stages import Select
from fope_lab.stages.labels import label
from fope_lab.tracking.view import StageOutline, as_text, valid_name

LENGTH_LIMIT = 6_000
"""MLflow's limit for the value of a parameter, in characters."""


def parameters(stage: StageOutline, stages: Mapping[str, StageOutline]) -> dict[str, str]:
    """The parameters of a stage; `stages` has the stages of its sweep by key.

    The axes of the sweep go by their paths, such as pretrain.embedding. The trained length and the
    learning rate are those of the last training of the model.
    """
    axes = {axis: label(value) for axis, value in stage.axes.items()}
    return flat(axes) | flat(stage.config) | flat(_of_model(stage, stages))


def model_parameters(stage: StageOutline, stages: Mapping[str, StageOutline]) -> dict[str, str]:
    """The parameters of the model that a stage leaves; `stages` has those of its sweep by key.

    They are short, unlike the configuration, which the run of the stage has. `tokens` is how many
    the last training of the model had to read.
    """
    axes = {axis: label(value) for axis, value in stage.axes.items()}
    tokens = _field(_training(stage, stages), "train", "tokens")
    own = {"key": stage.key, "stage": stage.section}
    own |= {} if tokens is None else {"tokens": tokens}
    return flat(axes) | flat(_of_model(stage, stages)) | flat(own)


def _of_model(stage: StageOutline, stages: Mapping[str, StageOutline]) -> dict[str, Any]:
    """What varies in the model that a stage makes or reads, as far as it is known.

    What a selection chooses is known only once it has.
    """
    training = _training(stage, stages)
    chosen = _chosen(stage, stages)
    values = {
        "embedding": stage.embedding,
        "scale": stage.scale,
        "seed": stage.seed,
        "train_length": _field(training, "data", "length"),
        "learning_rate": _field(training, "train", "learning_rate"),
    }
    values = {name: value for name, value in values.items() if name not in chosen}
    return {name: value for name, value in values.items() if value is not None}


def flat(config: Mapping[str, Any]) -> dict[str, str]:
    """Nested values as MLflow's parameters.

    Names of nested fields are joined by dots, and entries of a list of mappings are numbered. Other
    values are JSON, except for plain text. A value that is too long for MLflow ends in "…".
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
            if len(text) > LENGTH_LIMIT:
                text = text[: LENGTH_LIMIT - 1] + "…"
            found[valid_name(name)] = text
    return found


def _training(
    stage: StageOutline | None, stages: Mapping[str, StageOutline]
) -> Mapping[str, Any] | None:
    """The configuration of the last training of a stage's model, if the sweep has it."""
    while stage is not None and "train" not in stage.config:
        stage = _origin(stage, stages)
    return None if stage is None else stage.config


def _origin(stage: StageOutline, stages: Mapping[str, StageOutline]) -> StageOutline | None:
    """The stage whose model a stage reads; of a selection, the first of its candidates."""
    if stage.kind == Select.kind:
        return next((stages[key] for key in stage.parents.values() if key in stages), None)
    return stages.get(stage.parents.get(MODEL, ""))


def _chosen(stage: StageOutline | None, stages: Mapping[str, StageOutline]) -> set[str]:
    """The settings of the last training that a selection chose."""
    found = set()
    while stage is not None and "train" not in stage.config:
        if stage.kind == Select.kind:
            found.add(str(stage.config.get("over")).rpartition(".")[2])
        stage = _origin(stage, stages)
    return found


def _field(config: Mapping[str, Any] | None, section: str, name: str) -> Any:
    found = (config or {}).get(section)
    return found.get(name) if isinstance(found, Mapping) else None
