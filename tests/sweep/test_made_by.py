"""What a plan says of stages that other code made, and whose parts have other versions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sweep_files import BASE, changed, keys, load

from fope_lab.analysis.decay import Decay
from fope_lab.data.tasks.passkey import PasskeyTask
from fope_lab.embeddings.alibi import Alibi
from fope_lab.embeddings.yarn import Yarn
from fope_lab.evaluation.perplexity import Perplexity
from fope_lab.store import StageFolder, Store, source
from fope_lab.store.source import source_of
from fope_lab.sweep import plan
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import modules_of, output_digest

SWEEP = changed(
    BASE,
    {
        "stages.pretrain.data": {"length": 64, "mix": [{"corpus": "c4"}, {"task": "passkey"}]},
        "grid": {"pretrain.embedding": ["alibi", {"type": "yarn", "factor": 2}]},
        "stages.figure": {"kind": "analysis", "analysis": {"type": "decay", "embedding": "rope"}},
    },
)


def finish(folder: StageFolder, made_by: dict[str, Any] | None) -> None:
    with folder.begin("test", {}, made_by=made_by) as attempt:
        attempt.finish({})


def make(stage: Stage, store: Store) -> None:
    """Finish a stage as a run by today's code does."""
    name = store.keep_source(source_of(modules_of(stage)))
    finish(store.folder(stage.kind, stage.key), {"source": name})


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the code, to change."""
    ignore = shutil.ignore_patterns("__pycache__")
    for room in ("fope_lab", "trainers"):
        shutil.copytree(source.ROOT / room, tmp_path / "code" / room, ignore=ignore)
    return tmp_path / "code"


def test_a_plan_names_the_files_that_have_changed(
    tmp_path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, store = load(tmp_path, SWEEP), Store(tmp_path / "store")
    for stage in sweep.stages:
        make(stage, store)
    assert plan(sweep, store).changes == {}
    monkeypatch.setattr(source, "ROOT", copy)
    assert plan(sweep, store).changes == {}

    alibi = copy / "fope_lab/embeddings/alibi.py"
    alibi.write_text(alibi.read_text().replace("8", "9"))
    planned = plan(sweep, store)
    found = {stage.key for stage in sweep.stages if stage.embedding == "alibi"}
    assert found
    assert planned.changes == dict.fromkeys(found, ("fope_lab/embeddings/alibi.py",))
    for key in found:
        assert planned.action(key) == "cached"
        assert planned.states[key].reason.endswith(" s, but alibi.py has changed since")

    loss = copy / "fope_lab/model/loss.py"
    loss.write_text(loss.read_text() + "\nLATER = 1\n")
    reasons = [plan(sweep, store).states[key].reason for key in found]
    assert all(reason.endswith("but alibi.py, loss.py have changed since") for reason in reasons)


def test_a_stage_that_read_other_output_of_a_parent_is_planned_again(tmp_path: Path) -> None:
    sweep, store = load(tmp_path, SWEEP), Store(tmp_path / "store")
    stages = {stage.key: stage for stage in sweep.stages}

    def train(stage: Stage, weights: str) -> None:
        def write(path: Path) -> None:
            (path / "model").write_text(weights)

        folders = {r: store.folder(stages[k].kind, k) for r, k in stage.parents.items()}
        read = {role: output_digest(folder) or "" for role, folder in folders.items()}
        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            attempt.writer.save_checkpoint(1, write)
            attempt.finish({}, parents=read)

    for stage in sweep.stages:
        train(stage, "the weights")
    assert plan(sweep, store).changes == {}
    child = next(stage for stage in sweep.stages if stage.parents)
    parent = stages[next(iter(child.parents.values()))]
    store.folder(parent.kind, parent.key).set_aside("test")
    train(parent, "the weights")
    assert plan(sweep, store).changes == {}
    store.folder(parent.kind, parent.key).set_aside("test")
    assert plan(sweep, store).action(child.key) == "cached"  # what it read is only gone
    train(parent, "other weights")
    planned = plan(sweep, store)
    readers = {stage.key for stage in sweep.stages if parent.key in stage.parents.values()}
    assert {key for key in planned.states if planned.action(key) != "cached"} == readers
    assert planned.states[child.key].reason == (
        f"finished earlier, but {parent.section} has other output now than it read"
    )


def test_the_code_of_every_attempt_that_contributed_counts(tmp_path: Path) -> None:
    folder = StageFolder(tmp_path / "pretrain" / "key")
    for source_name, step in (("first", 1), ("second", 2)):
        with folder.begin("test", {}, made_by={"source": source_name}) as attempt:
            attempt.writer.save_checkpoint(step, lambda path: (path / "x").touch())
    assert folder.makers() == []
    finish(folder, {"source": "third"})
    assert [made_by["source"] for made_by in folder.makers()] == ["third", "second", "first"]


@pytest.mark.parametrize("part", [Alibi, Yarn, Decay, PasskeyTask, Perplexity])
def test_a_new_version_changes_the_keys_of_what_uses_it(
    tmp_path: Path, part: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys(load(tmp_path, SWEEP))
    monkeypatch.setattr(part, "version", 2)
    after = keys(load(tmp_path, SWEEP))
    names = {
        Alibi: {label for label in before if "alibi" in label},
        Yarn: {label for label in before if "yarn" in label},
        Decay: {label for label in before if label.startswith("figure")},
        PasskeyTask: {label for label in before if not label.startswith(("figure", "prepare"))},
        Perplexity: {label for label in before if label.startswith("perplexity")},
    }
    assert {label for label in before if before[label] != after[label]} == names[part]
