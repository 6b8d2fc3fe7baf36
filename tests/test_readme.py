"""What the README shows works: its sweep, its commands and its make targets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from fope_lab.cli import main
from fope_lab.model import Decoder, ModelConfig, save_model
from fope_lab.orchestration import run_sweeps as running
from fope_lab.orchestration import submit as submitting
from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    shlex.split(line, comments=True)
    for line in "".join(BLOCKS).splitlines()
    if line.startswith("fope-lab")
]


def test_the_sweep_is_right(tmp_path: Path) -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "one.txt").write_text("A novel.\n\n" * 500)
    (tmp_path / "sweeps").mkdir()
    sweep = tmp_path / "sweeps" / "books.yaml"
    sweep.write_text(text)
    stages = load_sweep(sweep).stages
    assert {stage.embedding for stage in stages if stage.kind == "pretrain"} == {
        "nope", "alibi", "rope(base=2344)", "fope(base=2344)"
    }  # fmt: skip


def test_what_is_installed_can_run_sweeps() -> None:
    """The base install can't: it has neither torch nor Ray nor MLflow."""
    assert re.findall(r"--editable (\S+)", README) == ["'.[all]'"]


def test_every_kind_of_command_is_shown_in_full() -> None:
    assert {command[1] for command in COMMANDS} == {
        "plan", "run", "report", "evaluate", "analyze", "submit"
    }  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model in place of the README's `checkpoint/`."""
    folder = tmp_path_factory.mktemp("readme") / "checkpoint"
    config = ModelConfig(num_layers=1, num_heads=2, head_dim=16, vocab_size=272)
    model = Decoder(config, "rope", train_length=64)
    save_model(folder, model, context_length=64, tokenizer="byte")
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_works(
    command: list[str],
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A plan is made for real; of what takes hours, everything up to the first stage.

    The store has a stage of another sweep, so that a report has something to read.
    """
    started = []

    def start(sweep: Any, *arguments: object, **options: object) -> int:
        started.append(sweep)
        return 0

    Store.create(tmp_path).folder("pretrain", "other").begin("test", {}).release()
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FOPE_LAB_STORE", str(tmp_path))
    monkeypatch.setattr(running, "run_sweeps", start)
    monkeypatch.setattr(running, "require_unblocked", lambda plans: None)  # it may need a download
    monkeypatch.setattr(submitting, "submit", start)
    _, name, *arguments = [str(checkpoint) if word == "checkpoint/" else word for word in command]
    assert main([name, *arguments]) == 0, capsys.readouterr().err
    assert len(started) == (name not in ("plan", "report"))
    assert name != "plan" or "stages" in capsys.readouterr().out


def test_the_python_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a store with made-up perplexities; what would train is left out."""
    [code] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    sweep, store = load_sweep(ROOT / "sweeps/quickstart.yaml"), Store(tmp_path)
    measured = [stage for stage in sweep.stages if stage.kind == "perplexity"]
    for stage in measured:
        points = [
            Measurement(name="perplexity_by_length", x=length, value=float(length))
            for length in stage.spec.lengths
        ]
        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            attempt.finish(ResultRecord(metrics=tuple(points)).as_json())
    started = []
    monkeypatch.setattr(running, "run_sweeps", lambda sweeps, *_, **options: started.append(sweeps))
    monkeypatch.setenv("FOPE_LAB_STORE", str(tmp_path))
    monkeypatch.chdir(ROOT)
    exec(code, {})
    assert [[each.name for each in sweeps] for sweeps in started] == [[sweep.name]]
    printed = capsys.readouterr().out
    for stage in measured:
        assert stage.section in printed
        assert stage.embedding is not None
        assert stage.embedding in printed


def test_every_make_target_and_file_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`?make ([a-z]+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    for path in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / path).is_file(), path
