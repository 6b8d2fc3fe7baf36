"""What MLflow shows of a stage, without an MLflow."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name

from fope_lab.store import Row, Status
from fope_lab.store.state import StageState
from fope_lab.store.time_taken import TimeTaken
from fope_lab.tracking import run_link
from fope_lab.tracking.points import Digest, not_finite, points
from fope_lab.tracking.view import Outline, StageTimeline, code_tags, metric_path, tags, time_tags


def plan_of(**changes: Any) -> Any:
    stage = {
        "key": "k1",
        "label": "pretrain[embedding=rope]",
        "section": "pretrain",
        "kind": "pretrain",
        "config": {"train": {"betas": (0.9, 0.95)}},
        "axes": {"pretrain.embedding": {"type": "rope", "base": 129}},
        "parents": {"data.0": "k0"},
        "seed": 0,
        "embedding": "rope",
        "scale": None,
    } | changes
    return SimpleNamespace(
        sweep=SimpleNamespace(
            name="s", description="d", path="sweeps/s.yaml", stages=(SimpleNamespace(**stage),)
        ),
        states={"k1": StageState(Status.DONE)},
    )


@given(st.dictionaries(st.text("abc@% =", min_size=1), st.floats(), min_size=1))
def test_points_have_names_and_values_that_mlflow_takes(values: dict[str, float]) -> None:
    for point in points(Row(7, 1000, values)):
        _validate_metric_name(point.name)
        assert (point.step, point.timestamp) == (7, 1000)
        assert not math.isinf(point.value)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_any_text_makes_the_path_of_a_metric(parts: list[str]) -> None:
    name = metric_path(["x", *(f"{part}.a" for part in parts)])
    _validate_metric_name(name)
    assert name.count("/") == len(parts)


def test_the_path_of_a_metric_stays_readable() -> None:
    assert metric_path(("difference", "RoPE + QK_Norm", "512")) == "difference/RoPE QK_Norm/512"
    assert metric_path(("stages_done",)) == "stages_done"


@given(st.dictionaries(st.sampled_from(["loss", "a/b"]), st.floats(allow_nan=False)))
def test_finite_values_are_kept_bit_for_bit(values: dict[str, float]) -> None:
    found = {p.name: p.value for p in points(Row(1, 1, values)) if math.isfinite(p.value)}
    assert found == {name: value for name, value in values.items() if math.isfinite(value)}


def test_not_finite_names_what_was_lost() -> None:
    rows = [Row(1, 0, {"a": 1.0, "b": math.inf}), Row(2, 0, {"a": -math.inf})]
    assert not_finite(rows) == "b=inf at 1, a=-inf at 2"
    assert not_finite([Row(1, 0, {"a": 1.0})]) is None


def test_an_outline_survives_as_json() -> None:
    outline = Outline.of(plan_of(), {})
    assert Outline.read(json.loads(outline.json())) == outline


def test_an_outline_of_before_files_were_recorded_is_read() -> None:
    raw = json.loads(Outline.of(plan_of(), {}).json())
    del raw["file"]
    outline = Outline.read(raw)
    assert outline is not None
    running = StageTimeline(Status.RUNNING, 0, None, None, None)
    assert "mlflow.source.name" not in tags(outline, outline.stages[0], running)


def test_the_source_of_a_run_is_the_sweep_file_at_a_commit() -> None:
    outline = Outline.of(plan_of(), {})
    running = StageTimeline(Status.RUNNING, 0, None, None, None)
    assert tags(outline, outline.stages[0], running)["mlflow.source.name"] == "sweeps/s.yaml"
    makers = [{"commit": "abc123", "clean": False}, {"commit": "def456", "clean": True}]
    found = code_tags(makers, [])
    assert found == {"commit": "abc123+, def456", "mlflow.source.git.commit": "abc123"}
    assert code_tags([{}], []) == {}


def test_a_tag_has_the_time_of_all_attempts() -> None:
    assert time_tags(TimeTaken(12.3, 3)) == {"time": "12 s over 3 attempts"}
    assert time_tags(TimeTaken(12.3, 1)) == {"time": "12 s"}
    assert time_tags(None) == {}


def test_a_curve_over_lengths_is_a_number_for_each_length_too() -> None:
    curves = {"perplexity_by_length": 9.5, "perplexity_by_length_stderr": 0.5}
    assert points(Row(64, 7, curves | {"accuracy_by_position": 1.0, "loss": 2.0})) == [
        ("perplexity_by_length", 64, 7, 9.5),
        ("perplexity/64", 0, 7, 9.5),
        ("perplexity_by_length_stderr", 64, 7, 0.5),
        ("accuracy_by_position", 64, 7, 1.0),
        ("loss", 64, 7, 2.0),
    ]


def test_a_stage_stays_cached_or_not_as_it_was_first_planned() -> None:
    assert Outline.of(plan_of(), {}).stages[0].cached
    assert not Outline.of(plan_of(), {"k1": False}).stages[0].cached


def test_tags_are_texts_and_leave_out_what_a_stage_does_not_have() -> None:
    failed = StageTimeline("failed", 0, 1, "boom " * 1000, Path("0001-000000010"))
    outline = Outline.of(plan_of(seed=None), {})
    found = tags(outline, outline.stages[0], failed)
    assert found["axis.pretrain.embedding"] == '{"type": "rope", "base": 129}'
    assert found["parent.data.0"] == "k0"
    assert found["sweep.s"] == "true"
    assert found["error"].startswith("boom boom")
    assert len(found["error"]) <= 1000
    assert not {"seed", "scale"} & found.keys()


@given(st.lists(st.integers(0, 5), max_size=6), st.lists(st.integers(0, 5), max_size=6))
def test_a_digest_tells_rows_apart(first: list[int], second: list[int]) -> None:
    def rows(steps: list[int]) -> list[Row]:
        return [Row(step, 10 * step, {"loss": step / 3}) for step in steps]

    assert (Digest(rows(first)).hex() == Digest(rows(second)).hex()) == (first == second)


def test_links_go_to_the_server_or_to_the_pages_of_a_database() -> None:
    view = "workflowType=machine_learning"
    local = run_link("sqlite:////x/mlflow.db", "1", "abc")
    assert local == f"http://127.0.0.1:5000/#/experiments/1/runs/abc?{view}"
    assert run_link("http://h:1/", "1", "abc") == f"http://h:1/#/experiments/1/runs/abc?{view}"


@pytest.mark.parametrize("name", ["loss@512", "a=b", "ü/ö"])
def test_mended_names_are_valid(name: str) -> None:
    (point,) = points(Row(1, 1, {name: 1.0}))
    _validate_metric_name(point.name)
