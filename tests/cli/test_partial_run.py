"""`fope-lab run --only` and `--retry-failed` run a part of a sweep, and say what they left out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import kept_sweep
import pytest

from fope_lab.cli import main
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep
from fope_lab.sweep.graph import Stage

SWEEP = kept_sweep.SWEEP.replace("name: kept", "name: partial")
NOT_SELECTED = "not selected; run without --only or --retry-failed to finish"


class Sweep:
    """A sweep file and its store."""

    def __init__(self, folder: Path) -> None:
        self.file, self.store = folder / "partial.yaml", Store(folder / "store")
        self.file.write_text(SWEEP)
        self.stages = {stage.label: stage for stage in load_sweep(self.file).stages}

        self.words = ["run", str(self.file), "--store", str(self.store.root)]

    def run(self, *options: str) -> int:
        return main([*self.words, *options])

    def folder(self, label: str) -> StageFolder:
        stage: Stage = self.stages[label]
        return self.store.folder(stage.kind, stage.key)

    def done(self) -> set[str]:
        return {label for label in self.stages if self.folder(label).is_done()}


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


ROPE, NOPE = "[embedding=rope,seed=0]", "[embedding=nope,seed=0]"


@pytest.mark.usefixtures("without_ray")
def test_what_failed_is_retried_with_what_waits_for_it_and_nothing_else(
    sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError), sweep.folder(f"pretrain{NOPE}").begin("test", {}):
        raise RuntimeError("the disk was full")
    assert sweep.run("--retry-failed") == 0
    assert sweep.done() == {f"pretrain{NOPE}", f"passkey{NOPE}"}
    output = capsys.readouterr().out
    assert output.startswith("partial: 4 stages: 2 run, 2 left out; store ")
    assert f"2 stages {NOT_SELECTED}" in output
    assert "partial: 2 of 4 stages are done; 2 not started." in output
    report = json.loads((sweep.store.root / "reports/partial/report.json").read_text())
    states = {stage["name"]: stage["state"] for stage in report["stages"]}
    assert states[f"pretrain{ROPE}"] == "not started"

    assert sweep.run("--only", f"passkey{NOPE}") == 0  # without Ray: all of it is done
    output = capsys.readouterr().out
    assert output.startswith("partial: 4 stages: 2 cached, 2 left out; store ")
    assert f"2 stages {NOT_SELECTED}" in output
    assert sweep.run("--retry-failed") == 0
    output = capsys.readouterr().out
    assert re.fullmatch(r"partial: no stage has failed; 2 of 4 stages are done; store .*\n", output)
    assert sweep.done() == {f"pretrain{NOPE}", f"passkey{NOPE}"}


def test_a_misspelt_stage_starts_nothing(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.run("--only", "paskey") == 2
    message = "unknown stage or key 'paskey'; did you mean 'passkey'? (allowed: pretrain, passkey)"
    assert capsys.readouterr().err == f"error: --only: {message}\n"
    assert not sweep.store.root.exists()


@pytest.mark.parametrize("flag", ["--only", "--retry-failed"])
def test_a_selection_with_redo_is_refused(
    flag: str, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [flag, "pretrain"] if flag == "--only" else [flag]
    assert sweep.run(*words, "--redo-stale") == 2
    assert f"error: {flag}: can't be used together with --redo" in capsys.readouterr().err
    assert not sweep.store.root.exists()


@pytest.mark.parametrize("options", [("--tracking-uri", "foo://x"), ("--device", "h101")])
def test_a_wrong_option_leaves_no_store(
    options: tuple[str, str], sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep.run(*options) == 2
    assert options[1] in capsys.readouterr().err
    assert not sweep.store.root.exists()
