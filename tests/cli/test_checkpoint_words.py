"""A checkpoint by its path, or by the name, the label or the key of its stage."""

from __future__ import annotations

from pathlib import Path

import kept_sweep
import pytest

from fope_lab.cli import main
from fope_lab.cli.commands.models import checkpoint_places
from fope_lab.config.problems import SweepError
from fope_lab.model import Decoder, ModelConfig, load_model, save_model
from fope_lab.store.root import Store
from fope_lab.sweep.graph import Stage


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "store")


@pytest.fixture
def stage(tmp_path: Path, store: Store) -> Stage:
    """The finished training of a sweep that the store has recorded."""
    scene = kept_sweep.Scene(tmp_path)
    scene.write(kept_sweep.SWEEP.partition("grid:")[0])
    scene.record()
    [stage] = [stage for stage in scene.sweep.stages if stage.kind == "pretrain"]
    config = ModelConfig(num_layers=1, num_heads=2, head_dim=16, vocab_size=272)
    model = Decoder(config, "rope", train_length=32)

    def write(folder: Path) -> None:
        save_model(folder, model, context_length=32, tokenizer="byte")

    with store.folder(stage.kind, stage.key).begin("test", {"config": stage.config}) as attempt:
        attempt.writer.save_checkpoint(4, write)
        attempt.finish({})
    return stage


def test_a_stage_goes_by_its_name_label_and_key(store: Store, stage: Stage) -> None:
    words = ["pretrain", stage.label, stage.key, stage.key[:8]]
    folder = str(store.folder(stage.kind, stage.key).path)
    assert checkpoint_places(words, str(store.root)) == [folder] * 4


def test_a_folder_here_comes_before_a_stage(
    store: Store, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pretrain").mkdir()
    assert checkpoint_places(["pretrain"], str(store.root)) == ["pretrain"]


def test_paths_and_the_hub_are_left_alone(store: Store, stage: Stage, tmp_path: Path) -> None:
    words = ["hf:org/name@abc", "some/where", "./pretrain"]
    assert checkpoint_places(words, str(store.root)) == words
    assert checkpoint_places(words, str(tmp_path / "nowhere")) == words


def test_a_store_that_is_not_there_is_told(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(SweepError) as error:
        checkpoint_places(["pretrain"], str(nowhere))
    told = f"CHECKPOINT: there is no folder pretrain here, and no store at {nowhere}"
    assert str(error.value) == told
    assert not nowhere.exists()


def test_a_stage_is_exported_by_its_name(
    store: Store, stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "exported"
    assert main(["export", "pretrain", str(out), "--store", str(store.root)]) == 0
    assert load_model(out).config.num_layers == 1
    assert main(["export", "pretran", str(tmp_path / "no"), "--store", str(store.root)]) == 2
    assert "pretrain" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
