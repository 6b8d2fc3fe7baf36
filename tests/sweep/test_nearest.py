"""A stage that the store lacks names the most similar stage there, and what was otherwise."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from sweep_files import BASE, changed, load, write

from fope_lab.cli import main
from fope_lab.orchestration.trial import request_of
from fope_lab.store.root import Store
from fope_lab.sweep import Plan, Sweep, plan
from fope_lab.sweep.nearest import with_nearest

SWEEP = changed(BASE, {"grid": {"pretrain.embedding": ["rope", "alibi"]}})
ROPE = "[embedding=rope,seed=0]"


def finish(sweep: Sweep, store: Store) -> None:
    """Finish the stages of a sweep as a run asks for them, without their work."""
    for stage in sweep.stages:
        folder = store.folder(stage.kind, stage.key)
        if not folder.is_done():
            with folder.begin("test", request_of(stage)) as attempt:
                attempt.finish({})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store in which the sweep is finished."""
    store = Store.create(tmp_path / "store")
    finish(load(tmp_path, SWEEP), store)
    return store


def planned(folder: Path, store: Store, changes: dict[str, Any]) -> Plan:
    sweep = load(folder, changed(SWEEP, changes))
    return with_nearest([plan(sweep, store)], store)[0]


def differences(found: Plan) -> dict[str, tuple[str, ...]]:
    return {
        stage.label: found.nearest[stage.key].differences
        for stage in found.sweep.stages
        if stage.key in found.nearest
    }


def test_one_field_is_named_and_its_value(tmp_path: Path, store: Store) -> None:
    before = {stage.label: stage.key for stage in load(tmp_path, SWEEP).stages}
    found = planned(tmp_path, store, {"stages.pretrain.train.learning_rate": 2e-3})
    name = f"pretrain{ROPE}"
    assert differences(found)[name] == ("train.learning_rate was 0.001",)
    assert {label.partition("[")[0] for label in differences(found)} == {"pretrain"}, "not children"
    [pretrain] = [stage for stage in found.sweep.stages if stage.label == name]
    assert found.nearest[pretrain.key].key == before[name], "the same embedding"
    assert found.states[pretrain.key].reason == (
        f"not in the store; nearest: train.learning_rate was 0.001 ({before[name][:8]})"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"stages.perplexity.lengths": [32, 128]}, "lengths was 32+64"),
        ({"stages.perplexity.tokens": 5000}, "tokens was not set"),
        ({"stages.perplexity.resources": {"cpus": 2}}, None),
        ({"stages.extend.data.length": 256}, None),
    ],
)
def test_fields_of_an_evaluation(
    tmp_path: Path, store: Store, changes: dict[str, Any], expected: str | None
) -> None:
    told = differences(planned(tmp_path, store, changes)).get(f"perplexity{ROPE}")
    assert told == (None if expected is None else (expected,))


def test_another_corpus_is_told_where_it_is_prepared(tmp_path: Path, store: Store) -> None:
    told = differences(planned(tmp_path, store, {"stages.perplexity.corpus": "pg19"}))
    [(name, found)] = told.items()
    assert name.startswith("prepare-data[pg19")
    assert "corpus.dataset was allenai/c4" in found


def test_an_embedding_is_named_as_a_sweep_names_it(tmp_path: Path, store: Store) -> None:
    changes = {"stages.pretrain.train.tokens": 200_000}
    changes |= {"grid": {"pretrain.embedding": [{"type": "rope", "base": 500}, "nope"]}}
    found = planned(tmp_path, store, changes)
    [one, other] = [d for label, d in differences(found).items() if label.startswith("pretrain")]
    assert set(one) == {"train.tokens was 100000", "embedding.base was not set"}
    assert "train.tokens was 100000" in other
    assert {"embedding was rope", "embedding was alibi"} & {*other}


def test_stages_of_the_sweep_itself_are_not_named(tmp_path: Path, store: Store) -> None:
    assert differences(planned(tmp_path, store, {"seeds": [0, 1]})) == {}


def test_what_differs_in_much_is_not_near(tmp_path: Path, store: Store) -> None:
    train = {"tokens": 9, "batch_tokens": 9, "learning_rate": 9.0, "warmup": 0.9}
    found = planned(
        tmp_path,
        store,
        {
            "stages.pretrain.train": train | {"weight_decay": 0.9},
            "stages.pretrain.data.length": 9,
            "stages.pretrain.model": {"scale": "60m"},
        },
    )
    assert not any(label.startswith("pretrain") for label in differences(found))


def test_a_few_are_shown_and_the_others_counted(tmp_path: Path, store: Store) -> None:
    train = {"tokens": 200_000, "batch_tokens": 4096, "learning_rate": 2e-3, "warmup": 0.2}
    found = planned(tmp_path, store, {"stages.pretrain.train": train})
    assert any("and 1 more (" in state.reason for state in found.states.values())


@pytest.mark.parametrize("damage", ["", "[]", "config: 3", "{", "config: {}\nparents: []"])
def test_a_damaged_stage_is_not_near(tmp_path: Path, store: Store, damage: str) -> None:
    for path in store.root.glob("*/*/stage.yaml"):
        path.write_text(damage)
    assert differences(planned(tmp_path, store, {"stages.pretrain.train.warmup": 0.2})) == {}


def test_the_command_prints_it(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    content = changed(SWEEP, {"stages.pretrain.train.learning_rate": 2e-3})
    path = write(tmp_path / "sweep.yaml", content)
    assert main(["plan", str(path), "--store", str(store.root)]) == 0
    assert "nearest: train.learning_rate was 0.001 (" in capsys.readouterr().out
    assert main(["plan", str(path), "--store", str(store.root), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["stages"]
    [row] = [row for row in rows if row["name"] == f"pretrain{ROPE}"]
    assert row["nearest"]["differences"] == ["train.learning_rate was 0.001"]
    assert next(row for row in rows if row["kind"] == "prepare-data")["nearest"] is None


def test_a_store_of_many_stages_is_read_quickly(tmp_path: Path, store: Store) -> None:
    """A thousand trainings: measured in seconds of this process, which others do not lengthen."""
    [folder, *_] = (store.root / "pretrain").iterdir()
    for n in range(1000):
        other = folder.with_name(f"{n:020}")
        other.mkdir()
        shutil.copyfile(folder / "stage.yaml", other / "stage.yaml")
        (other / "DONE").touch()
    started = time.process_time()
    found = planned(tmp_path, store, {"stages.pretrain.train.learning_rate": 2e-3})
    assert differences(found)[f"pretrain{ROPE}"] == ("train.learning_rate was 0.001",)
    assert time.process_time() - started < 2.5
