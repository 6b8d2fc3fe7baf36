"""A report as a whole: its JSON, its files, what it prints."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from report_samples import (
    finish,
    links_of,
    make_report,
    printed,
    report_of,
    typical_numbers,
    write_plan,
)

from fope_lab.report.render.json import report_json
from fope_lab.report.results.summary import Summary, cost_of
from fope_lab.store import Status, Store
from fope_lab.sweep.graph import Stage

CELL = {"stage", "metric", "x", "axes", "n", "mean", "ci95", "values", "paper"}
VALUE = {"seed", "value", "stderr", "ci95", "key", "run_id"}


def no_constants(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def test_json_keeps_the_contract_and_holds_no_nan(tmp_path: Path, store: Store) -> None:
    odd = {1: math.nan, 2: math.inf}

    def numbers(stage: Stage, length: int | None) -> float:
        if stage.kind == "perplexity" and length == 256:
            return odd.get(stage.seed or 0, -math.inf)
        return typical_numbers(stage, length)

    plan = write_plan(tmp_path)
    finish(plan, store, numbers, fail={"passkey[embedding=rope,seed=1]": "x"})
    report = make_report(plan, store, links_of(plan))
    text = json.dumps(report_json(report), allow_nan=False)
    given = json.loads(text, parse_constant=no_constants)
    assert {"cells", "claims", "stages"} <= given.keys()
    assert given == report_json(report)
    assert given["counts"] == {"total": 38, "done": 37, "failed": 1}
    [failed] = [stage for stage in given["stages"] if stage["state"] == "failed"]
    assert (failed["name"], failed["reason"]) == ("passkey[embedding=rope,seed=1]", "x")
    for cell in given["cells"]:
        assert cell.keys() == CELL
        assert all(value.keys() == VALUE for value in cell["values"])
        assert cell["n"] == len(cell["values"])
        assert all(value["run_id"] == f"run-{value['key']}" for value in cell["values"])
        if cell["x"] == 256:
            assert [v["value"] for v in cell["values"]] == ["-Infinity", "NaN", "Infinity"]
    assert {stage["key"] for stage in given["stages"]} == {stage.key for stage in plan.sweep.stages}


def test_axes_that_are_objects_are_given_whole(tmp_path: Path, store: Store) -> None:
    grid = {"pretrain.embedding": [{"type": "rope", "base": 129}, "nope"]}
    report = report_of(tmp_path, store, {"grid": grid, "seeds": [0]})
    cells = report_json(report)["cells"]
    axes = [cell["axes"]["pretrain.embedding"] for cell in cells]
    assert {"type": "rope", "base": 129} in axes
    assert "nope" in axes


def test_printing_gives_tables_findings_and_gaps(tmp_path: Path, store: Store) -> None:
    fail = {"perplexity[embedding=nope,seed=0]": "[red]broken[/red]"}
    text = printed(report_of(tmp_path, store, fail=fail))
    assert "37 of 38 stages are done; 1 failed." in text
    assert "perplexity[embedding=nope,seed=0]: failed: [red]broken[/red]" in text
    assert "at 64, the training length, rope is best (" in text
    assert "at 256, 4 × the training length, alibi is best (" in text
    for title in ("Perplexity", "Passkey accuracy", "Loss (pretrain)"):
        assert title in text.splitlines()


def test_a_long_list_of_gaps_is_cut_with_a_count(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path)
    text = printed(make_report(plan, store))
    assert "and 18 more; the report lists them all" in text


def test_one_seed_is_said_to_decide_nothing(tmp_path: Path, store: Store) -> None:
    report = report_of(tmp_path, store, {"seeds": [7]})
    assert "One seed (7): no intervals, and differences may be chance." in printed(report)
    assert all(cell.estimate.ci95 is None for cell in report.cells)
    assert report.summary.headline == "All 14 stages are done."


def test_one_stage_is_not_called_several() -> None:
    def headline(total: int, **counts: int) -> str:
        states = {Status(name): n for name, n in counts.items()}
        return Summary(total, states, (), cost_of([]), None, (), ()).headline

    assert headline(1, done=1) == "The only stage is done."
    assert headline(1, failed=1) == "0 of 1 stage is done; 1 failed."
    assert headline(3, done=2, failed=1) == "2 of 3 stages are done; 1 failed."


def test_failures_come_first_among_the_gaps(tmp_path: Path, store: Store) -> None:
    skip, fail = {"pretrain[embedding=nope,seed=0]"}, {"pretrain[embedding=fope,seed=2]": "late"}
    missing = report_of(tmp_path, store, skip=skip, fail=fail).summary.missing
    assert missing[0] == "pretrain[embedding=fope,seed=2]: failed: late"
    assert len(missing) == 6


def test_importing_the_package_is_cheap() -> None:
    heavy = {"matplotlib", "scipy", "jinja2", "torch", "ray", "mlflow"}
    code = f"import fope_lab.report, sys; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
