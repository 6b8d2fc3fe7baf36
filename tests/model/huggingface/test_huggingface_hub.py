"""Models of the hub by name, through huggingface_hub itself on a cache that has them."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub
import pytest
import torch

from benchmarks.parity import random_model
from fope_lab.model import SCALES, CheckpointError, checkpoint, load_model, parameters, read_config
from fope_lab.model.hub import HubName, hub_name, model_folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, and no way to the hub."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def downloaded(cache: Path, revision: str) -> Path:
    """A folder with the model `org/name`, as the cache has one that was downloaded."""
    repository = cache / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    folder = repository / "snapshots" / revision
    folder.mkdir(parents=True)
    random_model("gqa").save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", [f"hf:org/name@{COMMIT}", "hf:org/name@main", "hf:org/name"])
def test_a_model_of_the_hub_is_the_folder_in_its_cache(cache: Path, name: str) -> None:
    folder = downloaded(cache, COMMIT)
    assert model_folder(hub_name(name)) == folder
    ours, theirs = load_model(name, embedding="nope"), load_model(folder, embedding="nope")
    for path in (name, Path(name)):
        config = read_config(path)
        assert config.tokenizer == name.removeprefix("hf:")
        assert config.model == ours.config
    ids = torch.arange(60)[None]
    assert torch.equal(ours(ids).logits, theirs(ids).logits)


@pytest.mark.parametrize("read", [load_model, read_config])
def test_what_can_t_be_had_says_what_to_do(cache: Path, read: object) -> None:
    assert callable(read)
    with pytest.raises(CheckpointError) as raised:
        read(f"hf:org/name@{COMMIT}")
    said = str(raised.value)
    assert said.startswith(f"hf:org/name@{COMMIT} cannot be downloaded from the Hugging Face hub: ")
    assert said.endswith("Without access to the hub, give the folder of a copy.")
    assert "\n" not in said


def test_a_name_is_a_repository_and_perhaps_a_revision() -> None:
    assert hub_name("hf:gpt2") == HubName("gpt2", None)
    assert hub_name(Path("hf:org/name@v1.0")) == HubName("org/name", "v1.0")
    assert hub_name("./hf/org") is None
    assert [HubName("a", one).pinned for one in (None, "main", COMMIT[:7], COMMIT)] == [
        False,
        False,
        False,
        True,
    ]
    for wrong in ("hf:", "hf:@main", "hf:name@"):
        with pytest.raises(CheckpointError, match=r"write hf:NAME or hf:NAME@REVISION"):
            hub_name(wrong)


SMOLLM = "HuggingFaceTB/SmolLM-1.7B@d7449ff7241c863f3e8accc475155f0f97afa011"


def test_a_published_model_is_known_without_the_hub(cache: Path) -> None:
    """1,711,376,384 parameters, as its files on the hub say."""
    config = read_config(f"hf:{SMOLLM}")
    assert config.model == SCALES["smollm-1.7b"]
    assert parameters(config.model).total == 1_711_376_384
    assert (config.train_length, config.tokenizer) == (2048, SMOLLM)


def test_a_model_that_is_not_what_was_published_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = downloaded(cache, COMMIT)
    description = json.loads((folder / "config.json").read_text())
    known = {f"org/name@{COMMIT}": {**description, "max_position_embeddings": 99}}
    monkeypatch.setattr(checkpoint, "PINNED_CONFIGS", known)
    assert read_config(f"hf:org/name@{COMMIT}").train_length == 99
    with pytest.raises(CheckpointError, match="differs from the configuration that plans use"):
        load_model(f"hf:org/name@{COMMIT}")
