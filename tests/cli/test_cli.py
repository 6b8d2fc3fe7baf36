"""The command line on wrong input: one clear error each, exit code 2, and nothing started."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fope_lab.cli import main

GOOD = """
name: small
seeds: [0]
stages:
  pretrain:
    kind: pretrain
    model: {scale: tiny}
    embedding: rope
    data: {corpus: python-docs, length: 64}
    train: {tokens: 2048, batch_tokens: 1024, learning_rate: 1e-3}
  perplexity: {kind: perplexity, from: pretrain, corpus: python-docs, lengths: [64]}
grid:
  pretrain.embedding: [rope, nope]
"""


def write(folder: Path, old: str = "", new: str = "") -> Path:
    assert old in GOOD
    path = folder / "sweep.yaml"
    path.write_text(GOOD.replace(old, new, 1) if old else GOOD)
    return path


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("    data:", "    dta:", 9, ["unknown key 'dta'", "did you mean 'data'"]),
        ("seeds: [0]", "seeds: [0]\nseeds: [1]", 4, ["'seeds'", "given twice", "line 3"]),
        ("[rope, nope]", "[rope, nop]", 13, ["unknown embedding 'nop'", "did you mean 'nope'"]),
        ("from: pretrain", "from: pretrian", 11, ["no stage named", "did you mean 'pretrain'"]),
        ("{corpus: python-docs,", "{corpus: {files: none/*.txt},", 9, ["no file matches"]),
    ],
)
def test_a_wrong_sweep_file(
    old: str,
    new: str,
    line: int,
    says: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write(tmp_path, old, new)
    store = tmp_path / "store"
    assert main(["run", str(path), "--store", str(store)]) == 2
    error = capsys.readouterr().err
    assert f"{path}:{line}:" in error
    for text in says:
        assert text in error
    assert not store.exists()
    assert "Traceback" not in error


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, so that nobody else gets it, but not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "fope_lab.cli", "run", str(write(tmp_path))]
        options = ["--store", str(tmp_path / "store"), "--address", address]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"no Ray cluster answers at {address}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "says"), [("none.yaml", "is not there"), ("", "has no sweep file")]
)
def test_where_there_is_no_sweep(
    name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(tmp_path / name)]) == 2
    assert says in capsys.readouterr().err


def test_what_is_of_one_sweep_takes_no_folder_of_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(GOOD.replace("small", name))
    store = str(tmp_path / "store")
    assert main(["report", str(tmp_path), "--store", store]) == 2
    assert "needs one sweep file, but this folder has 2: a.yaml, b.yaml" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_two_sweeps_of_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(GOOD)
    assert main(["validate", str(tmp_path)]) == 2
    name = f"{tmp_path / 'b.yaml'}: name: sweep name 'small' is already used in "
    assert f"{name}{tmp_path / 'a.yaml'}" in capsys.readouterr().err


def test_validate_lists_the_sweeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    assert main(["validate", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{path}: small, 6 stages\n"


def test_plan_starts_nothing_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, store = write(tmp_path), tmp_path / "store"
    assert main(["plan", str(path), "--store", str(store)]) == 0
    text = capsys.readouterr().out
    assert "6 stages: 6 run" in text
    assert "not in the store" in text
    assert main(["plan", str(path), "--store", str(store), "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [stage["state"] for stage in planned["stages"]] == ["run"] * 6
    assert planned["totals"]["stages"] == 6
    assert not store.exists()
