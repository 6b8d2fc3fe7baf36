"""A stage that the store lacks names the most similar stage there, and what was otherwise."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from sweep_files import BASE, changed, load, write

from fope_lab.cli.app import main
from fope_lab.orchestration.trial import _request
from fope_lab.store import Store
from fope_lab.sweep import Plan, Sweep, plan
from fope_lab.sweep.nearest import with_nearest

SWEEP = changed(BASE, {"grid": {"pretrain.embedding": ["rope", "alibi"]}})
ROPE = "[embedding=rope,seed=0]"


def finish(sweep: Sweep, store: Store) -> None:
    """Finish the stages of a sweep as a run asks for them, without their work."""
    for stage in sweep.stages:
        folder = store.folder(stage.kind, stage.key)
        if not folder.is_done():
            with folder.begin("test", _request(stage)) as attempt:
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
    told = differences(found)
    assert told[f"pretrain{ROPE}"] == ("train.learning_rate was 0.001",)
    assert told[f"perplexity{ROPE}"] == ("pretrain.train.learning_rate was 0.001",)
    assert told[f"passkey{ROPE}"] == ("extend.pretrain.train.learning_rate was 0.001",)
    for stage in found.sweep.stages:
        if stage.key in found.nearest:
            assert found.nearest[stage.key].key == before[stage.label], "the same embedding"
    [pretrain, _] = [stage for stage in found.sweep.stages if stage.section == "pretrain"]
    assert found.states[pretrain.key].reason == (
        f"not in the store; nearest: train.learning_rate was 0.001 ({before[pretrain.label][:8]})"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"stages.perplexity.lengths": [32, 128]}, "lengths was 32+64"),
        ({"stages.perplexity.tokens": 5000}, "tokens was not set"),
        ({"stages.perplexity.corpus": "pg19"}, None),
        ({"stages.perplexity.resources": {"cpus": 2}}, None),
        ({"stages.extend.data.length": 256}, None),
    ],
)
def test_fields_of_an_evaluation(
    tmp_path: Path, store: Store, changes: dict[str, Any], expected: str | None
) -> None:
    told = differences(planned(tmp_path, store, changes)).get(f"perplexity{ROPE}")
    if changes == {"stages.perplexity.corpus": "pg19"}:
        assert told is not None
        assert "corpus.dataset was allenai/c4" in told
    else:
        assert told == (None if expected is None else (expected,))


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
    reasons = [state.reason for state in found.states.values()]
    assert any("and 1 more (" in reason for reason in reasons)


def test_an_empty_store_has_none(tmp_path: Path) -> None:
    empty = Store.create(tmp_path / "empty")
    assert differences(planned(tmp_path, empty, {})) == {}


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


def test_other_candidates_of_a_selection_are_told(tmp_path: Path) -> None:
    train = {**BASE["stages"]["pretrain"]["train"], "validate_every": 5}
    changes = {
        "stages.pretrain.train": train,
        "stages.pretrain.select": {"over": "train.learning_rate"},
        "stages.perplexity.corpus": "python-docs",
    }
    content = changed(BASE, changes) | {"grid": {"pretrain.train.learning_rate": [1e-3, 2e-3]}}
    store = Store.create(tmp_path / "store")
    finish(load(tmp_path, content), store)
    for other, expected in (
        ({"seeds": [0, 1]}, {"seeds was 0", "the candidates were others"}),
        (
            {"grid": {"pretrain.train.learning_rate": [1e-3, 4e-3]}},
            {"values was 0.001+0.002", "the candidates were others"},
        ),
        (
            {"stages": changed(content, {"stages.pretrain.train.tokens": 10_240})["stages"]},
            {"the candidates were others"},
        ),
    ):
        [found] = with_nearest([plan(load(tmp_path, content | other), store)], store)
        told = differences(found)
        assert expected >= set(told["select[pretrain[seed=0]]"]) > set()
