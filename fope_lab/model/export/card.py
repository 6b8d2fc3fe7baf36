"""The README.md of an export: a model card that says what the model is and how it came about.

The card has the configuration of the model, and what the caller knows of its origin: the stages
that trained it and the results of evaluations, as the store recorded them. It invents nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from fope_lab.model.checkpoint_files import CheckpointConfig
from fope_lab.model.config import parameters


@dataclass(frozen=True, kw_only=True)
class TrainingFacts:
    """What the store recorded of a stage that trained the model.

    `sweeps` are the names of the sweeps that have the stage, and `commit` is that of the code, with
    `+` if the code had changes; it is empty if the code was installed without its repository.
    `version` is that of fope-lab.
    `settings` has what the stage was asked for, as text by the name of the setting.
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
    """Return the text of the card; `remote_code` tells whether loading needs the model's code."""
    lines = [
        "---",
        yaml.safe_dump(_front_matter(config, origin), sort_keys=False).rstrip(),
        "---",
        "",
        f"# {title}",
        "",
        "This model was exported by fope-lab, which compares position embeddings. The card was "
        "generated from what is recorded of the model. It names no license, because that depends "
        "on the training data: add one before you publish the model.",
        "",
        *_model(config),
        *_training(origin),
        *_results(origin.scores),
        *_loading(config, remote_code),
    ]
    return "\n".join(lines) + "\n"


def _front_matter(config: CheckpointConfig, origin: Origin) -> dict[str, Any]:
    content: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["fope-lab", "position-embedding", config.embedding.name],
    }
    if origin.base_model:
        content["base_model"] = origin.base_model
    if origin.datasets:
        content["datasets"] = list(origin.datasets)
    return content


def _model(config: CheckpointConfig) -> Iterator[str]:
    model = config.model
    yield from _table(
        ("property", "value"),
        [
            ("parameters", f"{parameters(model).total:,}"),
            ("layers", str(model.num_layers)),
            ("attention heads", f"{model.num_heads} (of keys and values: {model.num_kv_heads})"),
            ("size of a head", str(model.head_dim)),
            ("hidden size", str(model.hidden_size)),
            ("vocabulary", f"{model.vocab_size:,}"),
            ("position embedding", f"`{json.dumps(config.embedding.canonical())}`"),
            ("original training length, tokens", f"{config.train_length:,}"),
            ("last training length, tokens", f"{config.context_length:,}"),
        ],
    )


def _training(origin: Origin) -> Iterator[str]:
    yield "## Training"
    yield ""
    if origin.base_model:
        yield f"The training started from `{origin.base_model}`."
        yield ""
    if not origin.trainings:
        yield "No record of a training was found beside the checkpoint."
        yield ""
    for training in origin.trainings:
        yield f"### {training.label or training.kind}"
        yield ""
        recorded = {
            "kind of stage": training.kind,
            "key": f"`{training.key}`",
            "sweep": ", ".join(training.sweeps),
            "version of fope-lab": training.version,
            "commit of fope-lab": f"`{training.commit}`" if training.commit else "",
        }
        rows = {**recorded, **training.settings}.items()
        yield from _table(("setting", "value"), [row for row in rows if row[1]])


def _results(scores: Sequence[Score]) -> Iterator[str]:
    if not scores:
        return
    yield "## Results"
    yield ""
    yield "The evaluations of this checkpoint that the store holds, with 95 % intervals of the"
    yield "finite evaluation where they are known; they say nothing about other seeds."
    yield ""
    rows = [
        (
            score.metric,
            "" if score.x is None else f"{score.x:,}",
            f"{score.value:.4g}",
            "" if score.interval is None else "{:.4g} to {:.4g}".format(*score.interval),
            f"`{score.stage}`",
        )
        for score in scores
    ]
    yield from _table(("metric", "at", "value", "95 % interval", "stage"), rows)


def _loading(config: CheckpointConfig, remote_code: bool) -> Iterator[str]:
    trust = ", trust_remote_code=True" if remote_code else ""
    yield "## How to load it"
    yield ""
    yield "```python"
    yield "from transformers import AutoModelForCausalLM, AutoTokenizer"
    yield ""
    yield 'folder = "."  # the folder of this file, or the name of the repository'
    yield f"model = AutoModelForCausalLM.from_pretrained(folder{trust})"
    yield f"tokenizer = AutoTokenizer.from_pretrained(folder{trust})"
    yield "```"
    yield ""
    trust = "trust_remote_code=True," if remote_code else ""
    yield "With lm-evaluation-harness, `max_length` sets how many tokens are read; its default is"
    yield f"the last training length, {config.context_length:,} tokens:"
    yield ""
    yield "```sh"
    yield f"lm_eval --model hf --model_args pretrained=.,{trust}max_length=LENGTH --tasks TASK"
    yield "```"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""
