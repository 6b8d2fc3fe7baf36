"""A model card says what the store recorded of a model, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kept_sweep import ROPE, Scene

from fope_lab.cli import main
from fope_lab.cli.housekeeping.model_origin import origin_of
from fope_lab.model import Decoder, ModelConfig, save_model
from fope_lab.model.export.card import Origin
from fope_lab.stages.metric import Measurement, ResultRecord

CONFIG = ModelConfig(num_layers=1, num_heads=2, head_dim=16, intermediate_size=64, vocab_size=272)
PASSKEY = "passkey[embedding=rope,seed=0]"
MADE_BY = {"commit": "0123456789ab", "clean": False, "versions": {"fope-lab": "0.9.9"}}


def train(scene: Scene) -> None:
    folder = scene.folder(ROPE)
    model = Decoder(CONFIG, "rope", train_length=32)
    with folder.begin("driver", scene.request(ROPE), made_by=MADE_BY) as attempt:
        attempt.writer.save_checkpoint(
            4, lambda path: save_model(path, model, context_length=32, tokenizer="byte")
        )
        attempt.finish({})


def measure(scene: Scene) -> None:
    point = Measurement(
        name="passkey_accuracy_by_length", x=32, value=0.375, ci95=(0.25, 0.5), n=16
    )
    with scene.folder(PASSKEY).begin("driver", scene.request(PASSKEY)) as attempt:
        attempt.finish(ResultRecord(metrics=(point,)).as_json())


def test_the_card_of_a_stage(scene: Scene, tmp_path: Path) -> None:
    train(scene)
    measure(scene)
    out = tmp_path / "my-model"
    assert main(["export", ROPE, str(out), *scene.options]) == 0
    _, front, card = (out / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["fope-lab", "position-embedding", "rotary"],
    }
    assert "# my-model" in card
    for row in (
        f"| key | `{scene.stage(ROPE).key}` |",
        "| sweep | kept |",
        "| version of fope-lab | 0.9.9 |",
        "| commit of fope-lab | `0123456789ab+` |",
        "| data | passkey |",
        "| tokens | 1024 |",
        "| learning rate | 0.01 |",
        "| seed | 0 |",
        "| layers | 1 |",
        "| last training length, tokens | 32 |",
    ):
        assert row in card, row
    assert "| passkey_accuracy_by_length | 32 | 0.375 | 0.25 to 0.5 | `passkey[" in card
    assert "from_pretrained(folder, trust_remote_code=True)" in card
    assert str(tmp_path) not in card, "a card that is published tells no path of the machine"


def test_a_checkpoint_of_a_stage_has_the_same_origin(scene: Scene) -> None:
    train(scene)
    measure(scene)
    folder = scene.folder(ROPE)
    [checkpoint] = (folder.path / "checkpoint").iterdir()
    found = origin_of(checkpoint, scene.store)
    assert found == origin_of(folder.path, scene.store)
    assert [score.value for score in found.scores] == [0.375]


def test_a_checkpoint_without_records_has_a_card_without_inventions(
    tmp_path: Path, scene: Scene
) -> None:
    model = Decoder(CONFIG, "rope", train_length=32)
    save_model(tmp_path / "checkpoint", model, context_length=32, tokenizer="byte")
    assert origin_of(tmp_path / "checkpoint", scene.store) == Origin()
    command = ["export", str(tmp_path / "checkpoint"), str(tmp_path / "out"), "--to", "llama"]
    assert main([*command, *scene.options]) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert "No record of a training was found" in card
    assert "trained with fope-lab" not in card  # nobody knows
    assert "## Results" not in card
    assert "trust_remote_code" not in card


@pytest.mark.parametrize("parent", ["checkpoint", "hf:EleutherAI/pythia-70m@" + "a" * 40])
def test_the_parents_of_a_model_are_told(scene: Scene, parent: str, tmp_path: Path) -> None:
    train(scene)
    folder = scene.folder(ROPE)
    origin = str(folder.path) if parent == "checkpoint" else parent
    (tmp_path / "text.txt").write_text("A text. " * 100)
    data = {"corpus": {"type": "files", "files": [str(tmp_path / "text.txt")]}, "weight": 2.0}
    config = {
        "kind": "extend",
        "from": origin,
        "data": {"length": 64, "mix": [data, {"corpus": {"type": "hub", "dataset": "org/texts"}}]},
        "train": {"tokens": 512},
    }
    child = scene.store.folder("extend", "child")
    lineage = [f"pretrain/{folder.path.name}"] if parent == "checkpoint" else []
    request = {"config": config, "parents": {"from": origin}, "lineage": lineage}
    with child.begin("driver", request) as attempt:
        attempt.finish({})
    found = origin_of(child.path, scene.store)
    kinds = [training.kind for training in found.trainings]
    assert found.datasets == ["org/texts"]
    assert "text.txt" in found.trainings[-1].settings["data"]
    assert str(tmp_path) not in found.trainings[-1].settings["data"]
    if parent == "checkpoint":
        assert kinds == ["pretrain", "extend"]
        assert found.base_model is None
    else:
        assert kinds == ["extend"]
        assert found.base_model == "EleutherAI/pythia-70m"
