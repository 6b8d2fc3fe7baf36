"""PosGen from a sweep file to a model that has learnt it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fope_lab.data.problems import DataError
from fope_lab.evaluation.context import run as evaluate
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep
from fope_lab.sweep.graph import Stage
from trainers.stage import run

SWEEP = """
name: x
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 2, num_heads: 2, head_dim: 16, feed_forward: relu}
    embedding: {type: rope, base: 100}
    data: {task: posgen, subtask: recursive, modulus: 5, k: 1, examples: 21, length: 16}
    train: {tokens: 61_440, batch_tokens: 512, learning_rate: 1e-2, weight_decay: 0.01}
  posgen: {kind: posgen, from: pretrain, subtask: recursive, modulus: 5, k: 1, length: 32, count: 2}
"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stage]:
    """The stages of the file."""
    path = tmp_path_factory.mktemp("sweep") / "sweep.yaml"
    path.write_text(SWEEP)
    return {stage.section: stage for stage in load_sweep(path).stages}


def test_a_small_model_learns_the_recursive_task(sweep: dict[str, Stage], tmp_path: Path) -> None:
    """Sums of two tokens modulo 5, within the length it is trained at; 0.93 was seen."""
    training = sweep["pretrain"]
    folder = Store(tmp_path).folder("pretrain", training.key)
    with folder.begin("test", {"config": training.config}) as attempt:
        attempt.finish(run(training.spec, attempt.writer, {}))  # type: ignore[arg-type]
    losses = [row.values["loss"] for row in folder.rows() if "loss" in row.values]
    assert losses[0] > 1.4
    assert losses[-1] < 0.15
    checkpoint = folder.checkpoint()
    parents = {"from": checkpoint.path}

    result = evaluated(sweep["posgen"], tmp_path, parents)
    recorded = result["recorded"]
    assert recorded["trained_length"] == 16
    assert recorded["trained_on_posgen"]
    assert recorded["chance"] == 0.2
    values = {metric["name"]: metric["value"] for metric in result["metrics"]}
    assert values["posgen_accuracy"] > 0.75
    assert values["posgen_ood_accuracy"] < values["posgen_accuracy"]
    # A stage of this sweep would be refused; the same model may be given as a folder.
    spec = dataclasses.replace(sweep["posgen"].spec, modulus=7)
    another = dataclasses.replace(sweep["posgen"], spec=spec, key="another")
    with pytest.raises(DataError, match="modulus: found 7, and the model is trained with 5"):
        evaluated(another, tmp_path, parents)


def evaluated(stage: Stage, root: Path, parents: dict[str, Path]) -> dict[str, Any]:
    """What an evaluation's result.json says."""
    folder = Store(root).folder("posgen", stage.key)
    with folder.begin("test", {}) as attempt:
        result = evaluate(stage.spec, attempt.writer, parents)  # type: ignore[arg-type]
        attempt.finish(result)
    found = folder.result()
    return found
