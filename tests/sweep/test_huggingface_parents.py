"""Hugging Face models as parents of stages: planned from their config.json alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from heavy_imports import heavy_modules
from sweep_files import BASE, load, of, told, write

from fope_lab.sweep import plan
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import action

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 256,
    "rope_theta": 1000.0,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = f"hf:org/name@{COMMIT}"


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A folder that a plan can read; only the identity of weights and tokenizer matters here."""
    folder = tmp_path / "llama"
    write(folder / "config.json", json.dumps(LLAMA))
    write(folder / "model.safetensors", b"weights")
    write(folder / "tokenizer.json", b"tokenizer")
    return folder


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A hub that has the config.json and nothing else; the downloads asked of it."""
    asked = []

    def download(repository: str, filename: str, *, revision: str) -> str:
        asked.append((repository, filename, revision))
        return str(write(tmp_path / "hub" / "config.json", json.dumps(LLAMA)))

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return asked


def content(parent: str) -> dict[str, Any]:
    """Every kind of stage that starts from a model."""
    stages = {name: {**BASE["stages"][name]} for name in BASE["stages"] if name != "pretrain"}
    for name in ("extend", "finetune", "perplexity", "passkey"):
        stages[name]["from"] = parent
    stages["extend"]["embedding"] = {"type": "fope", "base": 1000.0}
    return {"name": "hf", "seeds": [0, 1], "stages": stages}


def child(folder: Path, parent: str, name: str = "passkey") -> Stage:
    return of(load(folder, content(parent)), name)[0]


def stages_of(folder: Path, parent: str) -> dict[str, Stage]:
    sweep = load(folder, content(parent))
    assert set(map(action, plan(sweep).states.values())) == {"run"}
    return {name: of(sweep, name)[0] for name in sweep_names()}


def sweep_names() -> list[str]:
    return ["extend", "finetune", "perplexity", "passkey"]


def test_a_folder_is_a_parent_of_every_kind(tmp_path: Path, llama: Path) -> None:
    stages = stages_of(tmp_path, "./llama")
    for name, stage in stages.items():
        assert stage.checkpoints == {"from": str(llama)}
        assert stage.model_spec is not None
        assert stage.model_spec.tokenizer == str(llama)
        assert stage.model_spec.train_length == 64, "what YaRN starts from"
        assert (stage.model_spec.model.num_kv_heads, stage.model_spec.model.vocab_size) == (2, 320)
        kept = {"type": "rotary", "base": 1000.0, "transforms": [{"type": "yarn", "factor": 4.0}]}
        assert (stage.model_spec.embedding.canonical() == kept) == (name != "extend")
        assert stage.cost.parameters is not None
    assert stages["extend"].embedding == "fope(base=1000.0)"


def test_a_folder_is_its_content(tmp_path: Path, llama: Path) -> None:
    key = child(tmp_path, "./llama").key
    moved = tmp_path / "elsewhere"
    shutil.copytree(llama, moved)
    write(moved / "README.md", "not the model")
    same = [child(tmp_path, "./elsewhere", name).key for name in sweep_names()]
    assert same == [child(tmp_path, "./llama", name).key for name in sweep_names()]
    changes = {"model.safetensors": b"weight", "tokenizer.json": b"token", "config.json": b"320"}
    for name, found in changes.items():
        before = (moved / name).read_bytes()
        write(moved / name, before.replace(found, b"321"))
        assert child(tmp_path, "./elsewhere").key != key, name
        write(moved / name, before)
    assert child(tmp_path, "./elsewhere").key == key


def test_shards_are_content_too(tmp_path: Path, llama: Path) -> None:
    (llama / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    write(llama / "model.safetensors.index.json", json.dumps(index))
    keys = set()
    for content in (b"one", b"two"):
        write(llama / "model-1.safetensors", b"same")
        write(llama / "model-2.safetensors", content)
        keys.add(child(tmp_path, "./llama").key)
    assert len(keys) == 2
    (llama / "model-2.safetensors").unlink()
    assert "model-2.safetensors can't be read" in told(tmp_path, content_of_one("./llama"))[0]


def content_of_one(parent: str) -> dict[str, Any]:
    passkey = {**BASE["stages"]["passkey"], "from": parent}
    return {"name": "hf", "stages": {"passkey": passkey}}


def test_a_model_of_the_hub_is_planned_from_its_config(
    tmp_path: Path, hub: list[tuple[str, ...]]
) -> None:
    stages = stages_of(tmp_path, HUB)
    assert hub == [("org/name", "config.json", COMMIT)], "once, and nothing else"
    for stage in stages.values():
        assert stage.checkpoints == {"from": HUB}
        assert stage.model_spec is not None
        assert (stage.model_spec.tokenizer, stage.model_spec.train_length) == (
            f"org/name@{COMMIT}",
            64,
        )
    other = child(tmp_path, HUB.replace("0123", "abcd"))
    assert other.key != stages["passkey"].key


def test_without_the_hub_the_plan_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    [found] = told(tmp_path, content_of_one(HUB))
    assert f"stages.passkey.from: {HUB} cannot be downloaded from the Hugging Face hub: " in found
    assert "give the folder of a copy" in found


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ({"config.json": json.dumps({**LLAMA, "mlp_bias": True})}, "mlp_bias: found true"),
        ({"tokenizer.json": None}, "has no tokenizer"),
        ({"tokenizer.json": None, "tokenizer_config.json": "{}", "chat_template.jinja": "x"},
         "has no tokenizer (allowed: one of tokenizer.json, tokenizer.model, spiece.model, "
         "vocab.json)"),
        ({"model.safetensors": None}, "model.safetensors is missing"),
        ({"model.safetensors": None, "pytorch_model.bin": "weights"},
         "only pytorch_model.bin: convert it to safetensors"),
    ],
)  # fmt: skip
def test_a_wrong_folder(
    tmp_path: Path, llama: Path, damage: dict[str, str | None], expected: str
) -> None:
    for name, content in damage.items():
        if content is None:
            (llama / name).unlink()
        else:
            write(llama / name, content)
    [found] = told(tmp_path, content_of_one("./llama"))
    assert " stages.passkey.from: " in found
    assert expected in found


def test_planning_imports_neither_torch_nor_transformers(tmp_path: Path, llama: Path) -> None:
    path = write(tmp_path / "sweep.yaml", content("./llama"))
    code = f"from fope_lab.cli import main; assert main(['plan', {str(path)!r}]) == 0"
    assert heavy_modules(f"import os; os.chdir({str(tmp_path)!r}); {code}") == []


def test_what_reads_text_of_a_tokenizer_that_may_begin_it_has_that_in_its_key(
    tmp_path: Path, llama: Path
) -> None:
    """Without a prefix they compute what they did before there was the option."""

    def keys_of(parent: str, **options: Any) -> dict[str, str]:
        sweep = content(parent)
        for name in ("extend", "perplexity", "passkey"):
            sweep["stages"][name] |= options
        return {stage.section: stage.key for stage in load(tmp_path, sweep).stages}

    begun, bare = keys_of(str(llama)), keys_of(str(llama), prefix="none")
    assert begun == keys_of(str(llama), prefix="tokenizer")
    assert {name for name in begun if begun[name] != bare[name]} >= {"extend", "perplexity"}
    [passkey] = [s for s in load(tmp_path, content(str(llama))).stages if s.section == "passkey"]
    assert passkey.key == begun["passkey"]
