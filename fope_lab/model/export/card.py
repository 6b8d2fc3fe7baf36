"""The README.md of an export: a model card that says what the model is and how it came about.

The card has the configuration of the model, and what the caller knows of its origin: the stages
that trained it and the results of evaluations, as the store recorded them. It invents nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from fope_lab.model.checkpoint_files import CheckpointConfig
from fope_lab.model.config import parameters


@dataclass(frozen=True, kw_only=True)
class TrainingFacts:
    """What the store recorded of a stage that trained the model.

    `commit` is that of the code, with `+` if the code had changes; it is empty if the code was
    installed without its repository. `version` is that of fope-lab. `settings` has what the stage
    was asked for, as text.
    """

    kind: str
    label: str
    key: str
    sweeps: Sequence[str] = ()
    commit: str = ""
    version: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Score:
    """A number that a stage of the store measured of the model; `x` is the point of a curve."""

    metric: str
    x: int | None
    value: float
    interval: tuple[float, float] | None
    stage: str


@dataclass(frozen=True, kw_only=True)
class Origin:
    """How a model came about, as far as it is recorded.

    `trainings` starts with the pretraining. `base_model` is the repository on the Hugging Face hub
    that the first of them started from, `datasets` are the repositories of its data.
    """

    trainings: Sequence[TrainingFacts] = ()
    base_model: str | None = None
    datasets: Sequence[str] = ()
    scores: Sequence[Score] = ()


def model_card(title: str, config: CheckpointConfig, origin: Origin, *, remote_code: bool) -> str:
    """Return the text of the card; `remote_code`: whether loading needs the model's code."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fope_lab.model.export", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    front_matter: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["fope-lab", "position-embedding", config.embedding.name],
    }
    if origin.base_model:
        front_matter["base_model"] = origin.base_model
    if origin.datasets:
        front_matter["datasets"] = list(origin.datasets)
    model = config.model
    properties = {
        "parameters": f"{parameters(model).total:,}",
        "layers": str(model.num_layers),
        "attention heads": f"{model.num_heads} (of keys and values: {model.num_kv_heads})",
        "size of a head": str(model.head_dim),
        "hidden size": str(model.hidden_size),
        "vocabulary": f"{model.vocab_size:,}",
        "position embedding": f"`{json.dumps(config.embedding.canonical())}`",
        "original training length, tokens": f"{config.train_length:,}",
        "last training length, tokens": f"{config.context_length:,}",
    }
    return environment.get_template("card.md.j2").render(
        front_matter=yaml.safe_dump(front_matter, sort_keys=False).rstrip(),
        title=title,
        properties=properties.items(),
        base_model=origin.base_model,
        trainings=[(each.label or each.kind, _recorded(each)) for each in origin.trainings],
        scores=[_cells(score) for score in origin.scores],
        remote_code=remote_code,
        context_length=f"{config.context_length:,}",
    )


def _recorded(training: TrainingFacts) -> list[tuple[str, str]]:
    recorded = {
        "kind of stage": training.kind,
        "key": f"`{training.key}`",
        "sweep": ", ".join(training.sweeps),
        "version of fope-lab": training.version,
        "commit of fope-lab": f"`{training.commit}`" if training.commit else "",
        **training.settings,
    }
    return [(name, value) for name, value in recorded.items() if value]


def _cells(score: Score) -> tuple[str, ...]:
    point = "" if score.x is None else f"{score.x:,}"
    interval = "" if score.interval is None else "{:.4g} to {:.4g}".format(*score.interval)
    return score.metric, point, f"{score.value:.4g}", interval, f"`{score.stage}`"
