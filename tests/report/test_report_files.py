"""The files of a report: made anew only if anything that they show has changed."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_samples import finish, make_report, result, write_plan

from fope_lab.analysis.base import ARRAYS
from fope_lab.evaluation.context import run
from fope_lab.report import Report, RunLinks, files
from fope_lab.report.files import INPUTS, REPORT_FILES, fingerprint, write_report
from fope_lab.store import Store
from fope_lab.sweep import Plan

SMALL: dict[str, Any] = {"seeds": [0, 1], "grid": {"pretrain.embedding": ["rope", "nope"]}}
PASSKEY = "passkey[embedding=rope,seed=0]"
YEARS = itertools.count(2040)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return write_plan(tmp_path, SMALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "reports" / "sample"


def write_again(report: Report, folder: Path) -> bool:
    """Write a report; returns whether it was made anew, which its date tells."""
    before = (folder / "report.json").read_bytes()
    later = dataclasses.replace(report, generated=report.generated.replace(year=next(YEARS)))
    unchanged = write_report(later, folder).unchanged
    assert ((folder / "report.json").read_bytes() == before) == unchanged
    return not unchanged


def test_nothing_is_written_where_nothing_has_changed(
    plan: Plan, store: Store, folder: Path
) -> None:
    finish(plan, store)
    first = write_report(make_report(plan, store), folder)
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert (first.unchanged, str(first)) == (False, str(folder / "report.html"))
    assert not write_again(make_report(plan, store), folder)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times
    again = write_report(make_report(plan, store), folder)
    assert str(again) == f"{folder / 'report.html'} (unchanged)"


def another_value(plan: Plan, store: Store) -> None:
    [stage] = [s for s in plan.sweep.stages if s.label == PASSKEY]
    stage_folder = store.folder(stage.kind, stage.key)
    stage_folder.set_aside("test")
    with stage_folder.begin("test", {"config": stage.config}) as attempt:
        attempt.writer.log(32, {"passkey_accuracy_by_length": 0.123456})
        attempt.finish(result(form="symbolic"))


def a_failed_attempt(plan: Plan, store: Store) -> None:
    [stage] = [s for s in plan.sweep.stages if s.label == "passkey[embedding=nope,seed=1]"]
    attempt = store.folder(stage.kind, stage.key).begin("test", {})
    with pytest.raises(OSError, match="space"), attempt:
        raise OSError("no space left")


def a_damaged_result(plan: Plan, store: Store) -> None:
    [stage] = [s for s in plan.sweep.stages if s.label == PASSKEY]
    store.folder(stage.kind, stage.key).paths.result.write_text("{}")


@pytest.mark.parametrize("change", [another_value, a_failed_attempt, a_damaged_result])
def test_what_the_store_has_changes_the_report(
    plan: Plan, store: Store, folder: Path, change: Callable[[Plan, Store], None]
) -> None:
    finish(plan, store, skip=["passkey[embedding=nope,seed=1]"])
    write_report(make_report(plan, store), folder)
    change(plan, store)
    assert write_again(make_report(plan, store), folder)
    assert not write_again(make_report(plan, store), folder)


@pytest.mark.parametrize(
    "change",
    [
        {"description": "Others."},
        {"report": {"claims": ["perplexity@256: nope > rope"]}},
        {"report": {"tables": ["passkey"]}},
        {"seeds": [0]},
        {"paper": "fope/figure1"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_the_sweep_file_says_changes_the_report(
    plan: Plan, store: Store, folder: Path, change: dict[str, object], tmp_path: Path
) -> None:
    finish(plan, store)
    write_report(make_report(plan, store), folder)
    assert write_again(make_report(write_plan(tmp_path, {**SMALL, **change}), store), folder)


def test_what_surrounds_the_sweep_changes_the_report(
    plan: Plan, store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(plan, store)
    report = make_report(plan, store)
    write_report(report, folder)
    key = plan.sweep.stages[-1].key
    for other in (
        dataclasses.replace(report, provenance={**report.provenance, "commit": "abc1235"}),
        dataclasses.replace(report, links=RunLinks({key: "run"})),
        dataclasses.replace(report, links=RunLinks({key: "run"}, {key: "http://a/#/runs/run"})),
        dataclasses.replace(report, links=RunLinks({key: "run"}, {}, {"figure": "http://a/b"})),
    ):
        assert write_again(other, folder)
        assert not write_again(other, folder)
    with monkeypatch.context() as patched:
        patched.setattr(importlib.metadata, "version", lambda name: f"{name} 99")
        files._code_digest.cache_clear()
        assert write_again(other, folder)
    files._code_digest.cache_clear()
    monkeypatch.setattr(files, "_code_digest", lambda: "other code")
    assert write_again(other, folder)


@pytest.mark.parametrize("name", [*REPORT_FILES, INPUTS])
@pytest.mark.parametrize("damage", [None, b"", b"[]", b'{"inputs": 3, "files": [1]}'])
def test_a_damaged_or_missing_file_is_made_anew(
    plan: Plan, store: Store, folder: Path, name: str, damage: bytes | None
) -> None:
    report = make_report(plan, store)
    write_report(report, folder)
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    (folder / name).unlink()
    if damage is not None:
        (folder / name).write_bytes(damage)
    assert not write_report(report, folder).unchanged
    assert {path: path.read_bytes() for path in folder.iterdir()} == whole


def test_the_arrays_of_an_analysis_change_the_report(
    tmp_path: Path, store: Store, folder: Path
) -> None:
    decay = {"type": "decay", "length": 32, "pairs": 3, "head_dim": 8}
    stages = {"decay": {"kind": "analysis", "analysis": decay}}
    plan = write_plan(tmp_path, {"stages": stages, "grid": {}, "seeds": [0]})
    [stage] = plan.sweep.stages
    stage_folder = store.folder(stage.kind, stage.key)
    with stage_folder.begin("test", {}) as attempt:
        attempt.finish(run(stage.spec, attempt.writer, {}))  # type: ignore[arg-type]
    write_report(make_report(plan, store), folder)
    assert not write_again(make_report(plan, store), folder)
    checkpoint = stage_folder.checkpoint()
    assert checkpoint is not None
    path = checkpoint.path / ARRAYS
    size = path.stat().st_size
    with np.load(path) as arrays:
        changed = {name: arrays[name] for name in arrays.files}
    changed["constant"] = -changed["constant"]
    np.savez_compressed(path, **changed)
    path.write_bytes(path.read_bytes()[:size].ljust(size, b"\0"))  # the store looks at sizes alone
    assert write_again(make_report(plan, store), folder)


def test_another_process_has_the_same_fingerprint(plan: Plan, store: Store, tmp_path: Path) -> None:
    """No order of a set, and no address in memory, is in it."""
    finish(plan, store)
    code = (
        "from report_samples import *; from pathlib import Path;"
        "from fope_lab.report.files import fingerprint;"
        f"plan = write_plan(Path({str(tmp_path)!r}), {SMALL!r});"
        f"print(fingerprint(make_report(plan, Store(Path({str(store.root)!r})))))"
    )
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == fingerprint(make_report(plan, store))
