"""A finished sweep is read from its store when the local files that it read are gone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from sweep_files import changed, keys, load, of, write

from fope_lab.cli import main
from fope_lab.config.problems import SweepError
from fope_lab.orchestration.run_sweeps import keep_corpora
from fope_lab.orchestration.trial import Order, run_until_ended
from fope_lab.store.root import Store
from fope_lab.sweep import Plan, Sweep, load_sweep, plan

CONTENT = yaml.safe_load("""
name: gone
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    tokenizer: {train: bpe, vocabulary: 300, corpus: {files: [../sweeps/texts/*.txt]}}
    embedding: rope
    data: {files: texts/*.txt, length: 32}
    train: {tokens: 1024, batch_tokens: 256, learning_rate: 0.01}
  perplexity: {kind: perplexity, from: pretrain, corpus: {files: texts/*.txt}, lengths: [16, 32],
               tokens: 256}
grid: {pretrain.embedding: [rope, nope]}
report: {claims: ["perplexity.perplexity(files(3))@16: rope > nope"]}
""")
STAGES = 7


def run_all(sweep: Sweep, store: Store) -> None:
    """Run every stage that is not done, for real but without Ray."""
    stages = {stage.key: stage for stage in sweep.stages}
    for stage in sweep.stages:
        state = run_until_ended(Order(stage.key, stages, "test"), store)
        assert state.is_done, state


@dataclass(frozen=True)
class Project:
    """A sweep file beside its texts, and the store in which it is finished."""

    sweep: Path
    store: Store
    keys: dict[str, str]

    @property
    def folder(self) -> Path:
        return self.sweep.parent

    def texts(self) -> list[Path]:
        return sorted((self.folder / "texts").iterdir())

    def plan(self, content: Any = None) -> Plan:
        if content is not None:
            write(self.sweep, content)
        return plan(load_sweep(self.sweep, self.store), self.store)

    def actions(self, content: Any = None) -> dict[str, str]:
        planned = self.plan(content)
        return {stage.label: planned.action(stage.key) for stage in planned.sweep.stages}

    def command(self, *words: str) -> int:
        name, *options = words
        return main([name, str(self.sweep), "--store", str(self.store.root), *options])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Finished as a run finishes it, which then records what the files held."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("one", "two", "three"):
        text = "\n\n".join(f"Paragraph {n} of text {name}." for n in range(200))
        write(folder / "sweeps" / "texts" / f"{name}.txt", text)
    sweep, store = load(folder / "sweeps", CONTENT), Store.create(folder / "store")
    run_all(sweep, store)
    project = Project(sweep.path, store, keys(sweep))
    assert len(project.keys) == STAGES
    keep_corpora(project.plan(), store)
    assert len(store.corpora()) == 2, "a text in quotes, and a list of one"
    shutil.copytree(folder, folder.with_name("kept"))
    return project


@pytest.fixture
def project(finished: Project) -> Iterator[Project]:
    """The same files at the same places in every test."""
    yield finished
    top = finished.folder.parent
    shutil.rmtree(top)
    shutil.copytree(top.with_name("kept"), top, copy_function=shutil.copy2)


def one_file(project: Project) -> None:
    project.texts()[0].unlink()


def every_file(project: Project) -> None:
    for path in project.texts():
        path.unlink()


def the_folder(project: Project) -> None:
    shutil.rmtree(project.folder / "texts")


@pytest.mark.parametrize("remove", [one_file, every_file, the_folder])
def test_a_finished_sweep_is_read_without_its_corpus(
    project: Project, remove: Callable[[Project], None], capsys: pytest.CaptureFixture[str]
) -> None:
    gone = [str(path) for path in project.texts()]
    remove(project)
    planned = project.plan()
    assert keys(planned.sweep) == project.keys
    assert set(project.actions().values()) == {"cached"}
    capsys.readouterr()
    for command in ("plan", "status", "report"):
        assert project.command(command) == 0
        output = capsys.readouterr().out
        [note] = [line for line in output.splitlines() if "gone: the stages have" in line]
        more = "" if remove is one_file else " and 2 more"
        assert note.startswith(f"{gone[0]}{more} {'are' if more else 'is'} gone:"), command
        assert "content that the store recorded on 20" in note
    assert f"{STAGES} of {STAGES} done" in printed(project, "status", capsys)
    assert json.loads(printed(project, "report", capsys, "--json"))["counts"]["done"] == STAGES
    [first, *_] = json.loads(printed(project, "plan", capsys, "--json"))["stages"]
    assert first["state"] == "cached"


def printed(
    project: Project, command: str, capsys: pytest.CaptureFixture[str], *options: str
) -> str:
    capsys.readouterr()
    assert project.command(command, *options) == 0
    return capsys.readouterr().out


def test_a_new_evaluation_of_prepared_tokens_runs(project: Project) -> None:
    the_folder(project)
    further = {**CONTENT["stages"]["perplexity"], "lengths": [8]}
    actions = project.actions(changed(CONTENT, {"stages.further": further}))
    names = [f"further[embedding={name},seed=0]" for name in ("rope", "nope")]
    assert [actions.pop(name) for name in names] == ["run", "run"]
    assert set(actions.values()) == {"cached"}
    planned = project.plan()
    run_all(planned.sweep, project.store)
    for stage in of(planned.sweep, "further"):
        result = project.store.folder(stage.kind, stage.key).result()
        assert result is not None
        assert result["metrics"]


def test_a_stage_that_must_read_what_is_gone_is_blocked(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = project.texts()[0]
    gone.unlink()
    content = changed(CONTENT, {"stages.pretrain.tokenizer": "byte"})
    planned = project.plan(content)
    actions = {stage.kind: planned.action(stage.key) for stage in planned.sweep.stages}
    assert actions == {"prepare-data": "blocked", "pretrain": "run", "perplexity": "run"}
    reason = f"it needs its text files, but {gone} is gone; put back what is missing"
    assert reason in {state.reason for state in planned.states.values()}
    assert project.command("run") == 2
    assert reason in capsys.readouterr().err


def test_prepared_tokens_that_are_gone_can_not_be_made_again(project: Project) -> None:
    the_folder(project)
    train = next(s for s in project.plan().sweep.stages if s.label.endswith("train]"))
    shutil.rmtree(project.store.folder(train.kind, train.key).paths.checkpoints)
    assert project.actions()[train.label] == "blocked"


def test_files_that_changed_are_read_as_they_are(project: Project) -> None:
    first, second, _ = project.texts()
    first.unlink()
    second.write_text("Something else.")
    assert "cached" not in project.actions(changed(CONTENT, {"report": {}})).values()
    assert project.plan().sweep.missing_corpora == ()


def test_a_file_in_place_of_another_is_another_corpus(project: Project) -> None:
    first, *_ = project.texts()
    first.rename(first.with_name("other.txt"))
    assert set(project.actions().values()) == {"cached"}, (
        "names are not in the key, only their order"
    )
    (project.folder / "texts" / "other.txt").write_text("Something else.")
    assert "cached" not in project.actions().values()


def test_files_that_are_named_one_by_one_are_all_that_is_read(project: Project) -> None:
    first, *left = project.texts()
    first.unlink()
    names = [f"texts/{path.name}" for path in left]
    content = json.loads(json.dumps(CONTENT).replace('"texts/*.txt"', json.dumps(names)))
    content["stages"]["pretrain"]["tokenizer"]["corpus"] = {"files": names}
    planned = project.plan(content | {"report": {}})
    assert planned.sweep.missing_corpora == ()
    assert {planned.action(stage.key) for stage in planned.sweep.stages} == {"run"}


def test_what_no_stage_has_read_is_not_known(project: Project) -> None:
    """Files that are taken away before anything is prepared are simply not part of the corpus."""
    store = Store.create(project.folder / "empty")
    before = load_sweep(project.sweep, store)
    one_file(project)
    write(project.sweep, changed(CONTENT, {"report": {}}))
    assert not set(keys(load_sweep(project.sweep, store)).values()) & set(keys(before).values())
    the_folder(project)
    with pytest.raises(SweepError, match=r"no file matches 'texts/\*.txt'"):
        load_sweep(project.sweep, store)


def test_a_sweep_that_has_moved_is_known_by_its_name(project: Project) -> None:
    elsewhere = project.folder.with_name("elsewhere")
    the_folder(project)
    project.folder.rename(elsewhere)
    moved = Project(elsewhere / project.sweep.name, project.store, project.keys)
    assert keys(moved.plan().sweep) == project.keys
    missing = [path for one in moved.plan().sweep.missing_corpora for path in one.missing]
    assert str(elsewhere / "texts" / "one.txt") in missing


def test_a_copy_of_a_sweep_has_its_own_files(project: Project) -> None:
    copy = project.folder.with_name("copy")
    shutil.copytree(project.folder, copy)
    other = Project(copy / project.sweep.name, project.store, project.keys)
    other.texts()[0].unlink()
    planned = other.plan(changed(CONTENT, {"report": {}}))
    assert planned.sweep.missing_corpora == ()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"files": []}', "null", '{"corpus": 3'])
def test_a_damaged_record_is_none(project: Project, content: str) -> None:
    the_folder(project)
    for path in (project.store.root / "corpora").iterdir():
        path.write_text(content)
    with pytest.raises(SweepError, match=r"no file matches 'texts/\*.txt'"):
        project.plan()


def test_a_folder_of_a_data_set(project: Project) -> None:
    rows = "\n".join(json.dumps({"text": f"Row {n}. " * 20}) for n in range(40))
    folder = project.folder / "rows"
    for name in ("a", "b"):
        write(folder / f"{name}.jsonl", rows)
    data = {"dataset": "./rows", "length": 32}
    content = changed(CONTENT, {"stages.pretrain.data": data, "report": {}})
    del content["stages"]["perplexity"]
    planned = project.plan(content)
    run_all(planned.sweep, project.store)
    keep_corpora(project.plan(), project.store)
    (folder / "a.jsonl").unlink()
    assert set(project.actions().values()) == {"cached"}
    [known] = project.plan().sweep.missing_corpora
    assert known.missing == (str(folder / "a.jsonl"),)
