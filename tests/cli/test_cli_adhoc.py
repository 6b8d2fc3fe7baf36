"""`evaluate` and `analyze`: the sweep that they make, their errors, and a real run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fope_lab.analysis import analysis_names
from fope_lab.cli import main
from fope_lab.model import Decoder, ModelConfig, save_model
from fope_lab.sweep.adhoc import analysis_content, evaluation_content

SIZES = ModelConfig(num_layers=1, num_heads=2, head_dim=16, vocab_size=272)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models without training."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name in ("rope", "nope"):
        model = Decoder(SIZES, name, train_length=64)
        save_model(folder / name, model, context_length=64, tokenizer="byte")
    return [folder / "rope", folder / "nope"]


def test_tasks_are_stages_and_lengths_are_theirs() -> None:
    content = evaluation_content(
        ["a/b"],
        ["passkey: {trials: 3, lengths: [32]}", "perplexity: {corpus: python-docs}"],
        [64, 128],
        0.5,
    )
    gpus = {"resources": {"gpus": 0.5}, "from": "a/b"}
    assert content == {
        "stages": {
            "passkey": {"kind": "passkey", "trials": 3, "lengths": [32], **gpus},
            "perplexity": {"kind": "perplexity", "corpus": "python-docs"}
            | {"lengths": [64, 128], **gpus},
        }
    }


def test_several_checkpoints_are_one_axis() -> None:
    content = evaluation_content(["a/b", "c/d"], ["passkey", "perplexity"], [64], 0)
    assert content["zip"] == {"passkey.from": ["a/b", "c/d"], "perplexity.from": ["a/b", "c/d"]}


def test_embeddings_take_the_place_of_the_checkpoints_own() -> None:
    yarn = {"type": "yarn", "factor": 4}
    [text, own] = ["{type: yarn, factor: 4}", "null"]
    content = evaluation_content(["a/b"], ["passkey"], [64], 0, [text])
    assert content["stages"]["passkey"]["embedding"] == yarn
    assert "zip" not in content
    content = evaluation_content(["a/b", "c/d"], ["passkey"], [64], 0, [own, text])
    assert content["zip"] == {
        "passkey.from": ["a/b", "a/b", "c/d", "c/d"],
        "passkey.embedding": [None, yarn, None, yarn],
    }


def test_a_checkpoint_is_never_taken_for_a_stage() -> None:
    # In a sweep's file, which may lie in another folder, a bare word is a stage's name.
    given = ["passkey", "a/b", "~/c", "hf:name@commit", "other.yaml#stage"]
    named = ["./passkey", *given[1:]]
    assert evaluation_content(given, ["passkey"], [64], 0)["zip"] == {"passkey.from": named}
    assert analysis_content("decay", given, None, 0)["grid"] == {"analysis.from": named}


@pytest.mark.parametrize(
    "tasks",
    [
        ["hellaswag", "piqa"],
        ["{hellaswag: , piqa: }"],
        ["downstream: {tasks: [hellaswag]}", "piqa"],
    ],
)
def test_tasks_of_one_kind_are_one_stage(tasks: list[str]) -> None:
    content = evaluation_content(["a/b"], tasks, None, 0)
    expected = {"kind": "downstream", "tasks": ["hellaswag", "piqa"], "from": "a/b"}
    assert content == {"stages": {"downstream": expected}}


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (["pasky"], "--tasks: unknown task 'pasky'; did you mean 'passkey'?"),
        (["3"], "--tasks: found 3, needs a task"),
        (["passkey: 3"], "--tasks: found 3 for passkey, needs a mapping"),
        (["passkey: {lengths: [32"], "--tasks:1: is not YAML"),
        (["passkey: {trials: 3}", "passkey: {trials: 4}"], "passkey is given twice"),
        (["passkey"], "fope-lab evaluate: passkey.lengths: is missing"),
        (["passkey: {trails: 3}"], "did you mean 'trials'?"),
        (["pretrain"], "unknown task 'pretrain'"),
        (["hellaswag: {tasks: [piqa]}"], "hellaswag is a task, which has no tasks"),
        (["hellaswag: {limit: 3}", "piqa"], "downstream is given twice with different fields"),
        (["downstream", "mmlu_stem"], "downstream is given twice with different fields"),
        (["piqa", "downstream: {tasks: null}"], "downstream is given twice with different fields"),
        (["passkey: {from: x}"], "--tasks: passkey.from is not given here: CHECKPOINT says it"),
        (["piqa", "--lengths", "64"], "--lengths: has no effect: the tasks have no lengths"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    tmp_path: Path,
    checkpoints: list[Path],
    capsys: pytest.CaptureFixture[str],
    tasks: list[str],
    message: str,
) -> None:
    store = tmp_path / "store"
    command = ["evaluate", str(checkpoints[0]), "--tasks", *tasks, "--store", str(store)]
    assert main(command) == 2
    assert message in capsys.readouterr().err
    assert not store.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dekay"], "unknown analysis 'dekay'; did you mean 'decay'?"),
        (["{type: decay, lenth: 3}"], "did you mean 'length'?"),
        (["{type: decay, length: 3}"], "length: found 3, needs at least 16"),
        (["decay", "MODEL"], "analysis.from: has no effect: decay looks at no model"),
        (["decay", "--corpus", "python-docs"], "corpus: has no effect: decay looks at no text"),
        (["frequency-usage", "MODEL"], "analysis.corpus: is missing"),
        (["frequency-usage", "--corpus", "python-docs"], "analysis.from: is missing"),
    ],
)
def test_a_wrong_analysis_is_said_before_anything_starts(
    tmp_path: Path,
    checkpoints: list[Path],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    store = tmp_path / "store"
    given = [str(checkpoints[0]) if text == "MODEL" else text for text in arguments]
    assert main(["analyze", *given, "--store", str(store)]) == 2
    assert message in capsys.readouterr().err
    assert not store.exists()


def test_analyses_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in analysis_names())


@pytest.mark.usefixtures("without_ray")
def test_checkpoints_are_measured_and_analysed_for_real(
    tmp_path: Path,
    checkpoints: list[Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    def printed(*arguments: object) -> str:
        assert main([*map(str, arguments), "--store", "store"]) == 0
        return capsys.readouterr().out

    tasks = [
        "passkey: {form: symbolic, trials: 5}",
        "perplexity: {corpus: python-docs, tokens: 2048}",
    ]
    lengths = ["--lengths", "32", "64"]
    # Each with another embedding beside its own, in one table.
    swap = ["--embedding", "null", "{type: yarn, factor: 4}", "--name", "swap", "--json"]
    done = printed("evaluate", *checkpoints, "--tasks", *tasks, *lengths, *swap)
    cells: list[dict[str, Any]] = json.loads(done)["cells"]
    for model in map(str, checkpoints):
        of_model = [cell for cell in cells if model in cell["axes"].values()]
        for length in (32, 64):
            at_length = [cell for cell in of_model if cell["x"] == length]
            for metric in ("perplexity_by_length", "passkey_accuracy_by_length"):
                assert sum(cell["metric"] == metric for cell in at_length) == 2
            values = {c["mean"] for c in at_length if c["metric"] == "perplexity_by_length"}
            assert len(values) == 2, values
    # The sweep is saved, and what is planned of it is the same sweep.
    saved = tmp_path / "store" / "adhoc" / "swap.yaml"
    assert yaml.safe_load(saved.read_text())["stages"]["passkey"]["trials"] == 5
    assert "11 cached" in printed("plan", saved)

    done = printed("analyze", "{type: decay, length: 64, pairs: 10}")
    assert len(list(saved.parent.glob("analyze-*.yaml"))) == 1, "without --name it has one"
    [arrays] = (tmp_path / "store" / "analysis").glob("*/checkpoint/*/arrays.npz")
    assert str(arrays) in done
    assert str(arrays.with_name("figure.svg")) in done
    with np.load(arrays) as file:
        assert file["gaussian"].shape == (10, 64)
        assert float(file["constant"][0]) == pytest.approx(1.0)
