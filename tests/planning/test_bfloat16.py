"""What a plan says that bfloat16 would save."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from fope_lab.devices import CPU
from fope_lab.planning import estimate, plan_table
from fope_lab.planning.estimate import PlanEstimate, bfloat16_share, estimate_plans
from fope_lab.planning.forecast import Calibration, Timing, workload_of
from fope_lab.planning.plan_table import duration, print_plan
from fope_lab.sweep import load_sweep, plan

SWEEP = """
name: some
stages:
  pretrain:
    kind: pretrain
    model: {{num_layers: 4, num_heads: 4, head_dim: 64}}
    embedding: rope
    data: {{length: 64, mix: [{{task: posgen, subtask: recursive}}]}}
    train: {{tokens: 64_000_000, batch_tokens: 2048, learning_rate: 1e-3, precision: {precision}}}
    resources: {{gpus: {gpus}}}
"""


@pytest.fixture(params=["avx512_bf16", "", None])
def instruction(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """An instruction for bfloat16, none, and no knowledge of it."""
    found: str | None = request.param
    for module in (estimate, plan_table):
        monkeypatch.setattr(module, "bfloat16_instruction", lambda: found)
    return found


def estimated(
    tmp_path: Path, precision: str = "float32", gpus: int = 0, device: str | None = None
) -> PlanEstimate:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP.format(precision=precision, gpus=gpus))
    return estimate_plans([plan(load_sweep(path))], device=device)


def shown(found: PlanEstimate) -> str:
    out = io.StringIO()
    print_plan(found, Console(file=out, width=300))
    return out.getvalue()


@pytest.mark.parametrize(
    ("width", "measured"), [(64, 1 / 1.22), (128, 1 / 1.49), (256, 1 / 1.76), (512, 1 / 1.90)]
)
def test_the_law_is_near_what_was_measured(width: int, measured: float) -> None:
    assert bfloat16_share(width) == pytest.approx(measured, rel=0.06)
    assert bfloat16_share(width) > bfloat16_share(2 * width)


def test_a_plan_says_what_bfloat16_would_save(tmp_path: Path, instruction: str | None) -> None:
    found = estimated(tmp_path)
    [seconds] = (row["seconds"] for row in found.as_json()["stages"] if row["kind"] == "pretrain")
    saves = found.totals()["bfloat16"]
    if not instruction:
        assert saves is None
        assert "bfloat16:" not in shown(found)
        return
    expected = seconds * (1 - bfloat16_share(256))
    assert saves == {"trainings": 1, "seconds": seconds, "saved": pytest.approx(expected)}
    said = "bfloat16: this processor has avx512_bf16; with train.precision: bfloat16 1 training"
    share = 1 - bfloat16_share(256)
    assert f"{said} would take about {share:.0%} less time, by the width" in shown(found)


@pytest.mark.parametrize("instruction", ["avx512_bf16"], indirect=True)
def test_a_plan_from_measured_times_says_how_much_bfloat16_would_save(
    tmp_path: Path, instruction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP.format(precision="float32", gpus=0))
    sweep = load_sweep(path)
    [work] = [workload_of(stage) for stage in sweep.stages if stage.kind == "pretrain"]
    calibration = Calibration({CPU: [Timing(work, 36_000.0)]})
    monkeypatch.setattr(estimate, "calibrate", lambda store: calibration)
    saved = duration(36_000.0 * (1 - bfloat16_share(256)))
    assert f"would take about {saved} less than 10.0 h, by" in shown(estimate_plans([plan(sweep)]))


def test_a_plan_says_where_bfloat16_is_slow(tmp_path: Path, instruction: str | None) -> None:
    warning = "this processor has no instruction for it; here 1 training with train.precision"
    assert (warning in shown(estimated(tmp_path, "bfloat16"))) == (instruction == "")
    assert warning not in shown(estimated(tmp_path, "float32"))
    assert warning not in shown(estimated(tmp_path, "bfloat16", gpus=1, device="h100"))
    for given in ({"precision": "bfloat16"}, {"gpus": 1}):
        assert estimated(tmp_path, **given).totals()["bfloat16"] is None


def test_a_plan_says_where_float32_leaves_a_gpu_idle(tmp_path: Path) -> None:
    said = "float32: 1 training on GPUs; the peak of h100 is 14.8 times as high with"
    assert said in shown(estimated(tmp_path, "float32", gpus=1, device="h100"))
    assert "float32: 1" not in shown(estimated(tmp_path, "bfloat16", gpus=1, device="h100"))
    assert "float32: 1" not in shown(estimated(tmp_path, "float32"))
