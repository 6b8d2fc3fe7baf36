"""What a plan says of stages that other code made and whose parts have other versions, and of two
sweep files with one name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sweep_files import BASE, PRETRAIN_LINE, changed, keys, load, write

from fope_lab.analysis.decay import Decay
from fope_lab.cli import main
from fope_lab.data.tasks.passkey import PasskeyTask
from fope_lab.embeddings.alibi import Alibi
from fope_lab.embeddings.yarn import Yarn
from fope_lab.evaluation.perplexity import Perplexity
from fope_lab.store import source
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.store.source import source_of
from fope_lab.sweep import plan
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import modules_of, output_digest, same_stages_note, shared_files_note

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


SHARED = f"name: shared\nstages:\n  pretrain: {PRETRAIN_LINE}\n"


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """A sweep file whose report is in the store."""
    path = write(tmp_path / "one.yaml", SHARED)
    (tmp_path / "store" / "reports" / "another").mkdir(parents=True)
    assert command("report", path) == 0
    return path


@pytest.fixture
def two(one: Path) -> Path:
    """Another sweep of that name."""
    return write(one.with_name("two.yaml"), SHARED.replace("1e-3", "2e-3"))


def command(name: str, path: Path) -> int:
    return main([name, str(path), "--store", str(path.parent / "store")])


def notes(name: str, path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert command(name, path) == 0
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if line.startswith("two sweep files")]


@pytest.mark.parametrize("name", ["plan", "status", "report"])
def test_both_paths_are_told(
    one: Path, two: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert notes(name, one, capsys) == []
    assert notes(name, two, capsys) == [
        f"two sweep files have the name 'shared': {two} and {one}. They share a report and an"
        " MLflow experiment; give one of them another name"
    ]


def test_a_file_that_was_moved_or_changed_its_name_is_not_told(
    one: Path, two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one.write_text(SHARED.replace("shared", "another"))
    assert notes("plan", two, capsys) == []
    one.write_text("name: [")
    assert notes("plan", two, capsys) == []
    one.rename(two)
    two.write_text(SHARED)
    assert notes("plan", two, capsys) == []


def test_equal_files_and_copies_in_the_store_are_not_told(
    one: Path, two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = write(one.with_name("same.yaml"), SHARED)
    assert notes("plan", same, capsys) == []
    submitted = write(one.parent / "store" / "submitted" / "s.yaml", two.read_text())
    assert main(["plan", str(submitted), "--store", str(one.parent / "store")]) == 0
    assert "two sweep files" not in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"path": 3}'])
def test_a_damaged_note_of_the_file_is_none(
    one: Path, two: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (one.parent / "store" / "reports" / "shared" / "sweep.json").write_text(damage)
    assert command("plan", two) == 0


def test_files_of_one_name_at_once_are_an_error(
    one: Path, two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("validate", "plan", "run"):
        assert main([name, str(one), str(two)]) == 2
        assert f"sweep name 'shared' is already used in {one}" in capsys.readouterr().err


def test_a_file_of_two_corpora_is_named(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"text": "{name} word"}}\n' * 20)
    data = {"files": "*.jsonl", "length": 8}
    for corpus, noted in (("b.jsonl", True), ("*.jsonl", False)):
        changes = {"stages.pretrain.data": data, "stages.perplexity.corpus": {"files": corpus}}
        sweep = load(tmp_path, changed(BASE, changes | {"stages.perplexity.lengths": [8]}))
        note = shared_files_note(sweep)
        assert (note is not None and note.startswith("b.jsonl is in two corpora")) is noted


def test_values_of_an_axis_that_give_one_stage_are_named(tmp_path: Path) -> None:
    axes = {"pretrain.prefix": ["tokenizer", "none"], "pretrain.embedding": ["rope", "nope"]}
    sweep = load(tmp_path, changed(BASE, {"grid": axes}))
    expected = "pretrain.prefix: tokenizer and none give pretrain the same stage, which runs once"
    assert same_stages_note(sweep) == expected
    del axes["pretrain.prefix"]
    assert same_stages_note(load(tmp_path, changed(BASE, {"grid": axes}))) is None
