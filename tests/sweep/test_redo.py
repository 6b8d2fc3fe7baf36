"""Which stages are re-run on request, and what becomes of their previous output."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from sweep_files import BASE, changed, load

from fope_lab.config.problems import SweepError
from fope_lab.store import StageFolder, Status, Store
from fope_lab.store.lease import LeaseHeldError
from fope_lab.sweep import Plan, plan
from fope_lab.sweep.stage_filter import stages_to_redo

SWEEP = changed(BASE, {"grid": {"pretrain.embedding": ["alibi", "rope"]}})


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    return plan(load(tmp_path, SWEEP), Store(tmp_path / "store"))


def sections(planned: Plan, *names: str) -> set[str]:
    return {stage.section for stage in stages_to_redo([planned], names)}


def test_a_stage_is_named_by_section_label_or_key(planned: Plan) -> None:
    extend = [stage for stage in planned.sweep.stages if stage.section == "extend"]
    assert len(extend) == 2
    for stage in extend:
        for name in (stage.label, stage.key, stage.key[:6]):
            found = stages_to_redo([planned], [name])
            assert found[0] == stage
            assert [each.section for each in found] == ["extend", "finetune", "passkey"]
    assert len(stages_to_redo([planned], ["extend"])) == 6


def test_everything_that_depends_on_it_is_re_run_parents_first(planned: Plan) -> None:
    assert sections(planned, "pretrain") == {
        "pretrain", "extend", "finetune", "perplexity", "passkey"
    }  # fmt: skip
    assert sections(planned, "perplexity") == {"perplexity"}
    order = [stage.key for stage in stages_to_redo([planned], ["pretrain"])]
    for stage in planned.sweep.stages:
        if stage.key in order:
            before = [order.index(key) for key in stage.parents.values() if key in order]
            assert all(index < order.index(stage.key) for index in before)


def test_stale_stages_are_those_of_the_plan(planned: Plan) -> None:
    [one, _] = [stage for stage in planned.sweep.stages if stage.section == "perplexity"]
    planned = dataclasses.replace(planned, changes={one.key: ("alibi.py",)})
    assert stages_to_redo([planned]) == []
    assert stages_to_redo([planned], stale=True) == [one]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("extnd", "--redo: unknown stage or key 'extnd'; did you mean 'extend'?"),
        ("abc", "--redo: unknown stage or key 'abc'"),
        ("", "--redo: unknown stage or key ''"),
    ],
)
def test_a_name_that_no_stage_has_is_an_error(planned: Plan, name: str, message: str) -> None:
    with pytest.raises(SweepError) as caught:
        stages_to_redo([planned], [name])
    assert str(caught.value).startswith(message)


def write(path: Path) -> None:
    (path / "model").write_text("weights")


def finished(path: Path) -> StageFolder:
    folder = StageFolder(path / "pretrain" / "key")
    with folder.begin("first", {}) as attempt:
        attempt.writer.log(1, {"loss": 2.0})
        attempt.writer.save_checkpoint(1, write)
        attempt.finish({"loss": 2.0})
    return folder


def test_what_was_there_is_set_aside_whole(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    rows = folder.rows()
    aside = folder.set_aside("second")
    assert aside is not None
    assert folder.state().status is Status.NOT_STARTED
    assert folder.state().checkpoint is None
    assert (folder.rows(), folder.result()) == ([], None)
    kept = {str(path.relative_to(aside)) for path in aside.rglob("*") if path.is_file()}
    assert kept == {
        "DONE",
        "result.json",
        "checkpoint/0001-000000001/manifest.json",
        "checkpoint/0001-000000001/model",
        "metrics/0001-000000000.jsonl",
    }
    assert folder.set_aside("third") is None

    with folder.begin("third", {}) as attempt:
        assert attempt.writer.resumed_from is None
        attempt.writer.log(1, {"loss": 3.0})
        attempt.finish({"loss": 3.0})
    assert [row.values for row in folder.rows()] == [{"loss": 3.0}] != [r.values for r in rows]
    assert folder.result() == {"loss": 3.0}


def test_a_stage_that_somebody_works_on_is_left_alone(tmp_path: Path) -> None:
    folder = StageFolder(tmp_path / "pretrain" / "key")
    with folder.begin("first", {}) as attempt:
        attempt.writer.save_checkpoint(1, write)
        with pytest.raises(LeaseHeldError):
            folder.set_aside("second")
        attempt.finish({})
    assert folder.is_done()


@pytest.mark.parametrize("moved", ["checkpoint", "checkpoint metrics"])
def test_a_process_that_dies_while_it_moves_output_leaves_no_finished_stage(
    tmp_path: Path, moved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    folder = finished(tmp_path)
    real, names = os.rename, moved.split()

    def rename(source: Path, target: Path) -> None:
        if Path(source).name not in names:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr("fope_lab.store.folder.os.rename", rename)
    with pytest.raises(KeyboardInterrupt):
        folder.set_aside("second")
    monkeypatch.undo()
    assert not folder.is_done()
    with folder.begin("third", {}, supersede=2) as attempt:
        assert attempt.writer.resumed_from is None
        attempt.finish({})
    assert folder.rows() == []
