"""What a stage is to take, learnt from stages that ran, and every way to fall back."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import kept_sweep
import pytest
from sweep_files import BASE, changed, load

from fope_lab.config.devices import CPU, device_named, this_machine
from fope_lab.config.processor import processor
from fope_lab.planning.estimate import estimate_plans
from fope_lab.planning.forecast import (
    Calibration,
    Timing,
    Workload,
    calibrate,
    forecast_seconds,
    without_gaps,
    workload_of,
)
from fope_lab.store.root import Store
from fope_lab.sweep import SweepError, plan


def work(tokens: int = 100_000, flops: float = 1e12, **other: Any) -> Workload:
    fields: dict[str, Any] = {
        "kind": "pretrain",
        "family": "training",
        "question": "q",
        "precision": "float32",
        "share": 0.0,
    }
    return Workload(**(fields | {"tokens": tokens, "flops": flops} | other))


def reading(kind: str, flops: float = 1e11, **other: Any) -> Workload:
    sizes = {"tokens": 50_000, "flops": flops}
    return work(**(sizes | {"kind": kind, "family": "evaluation"} | other))


def test_the_median_rate_of_alike_stages() -> None:
    taken = [Timing(work(flops=f), f * rate) for f, rate in ((1e12, 2e-11), (2e12, 9e-11))]
    calibration = Calibration({CPU: [*taken, Timing(work(flops=1e13), 300.0)]})
    found = calibration.estimate(work(flops=4e12), this_machine())
    assert (found.seconds, found.source) == (pytest.approx(120.0), "measured on cpu: 3 trainings")


def test_stages_of_the_same_size_come_first() -> None:
    """A larger model is not as slow for each FLOP as a tiny one."""
    tiny, large = work(width=64), work(width=512)
    calibration = Calibration({CPU: [Timing(tiny, 100.0)] * 3 + [Timing(large, 20.0)]})
    assert calibration.estimate(large, this_machine()).seconds == pytest.approx(20.0)
    alone = Calibration({CPU: [Timing(tiny, 100.0)]}).estimate(large, this_machine())
    assert (alone.seconds, alone.assumed) == (pytest.approx(100.0), True)
    assert alone.source == "measured on cpu: 1 training of other sizes"


def test_each_way_to_fall_back_says_so() -> None:
    cpu = this_machine()
    taken = [Timing(work(), 10.0)] * 8
    perplexity = [Timing(reading("perplexity", f), f / 1e10) for f in (1e11, 2e11)]

    def told(wanted: Workload, *found: Timing) -> str:
        return Calibration({CPU: found}).estimate(wanted, cpu).source

    like = reading("perplexity")
    assert told(like, *taken, *perplexity) == "measured on cpu: 2 perplexity stages"
    other = reading("passkey")
    assert told(other, *taken, *perplexity) == ("measured on cpu: 2 evaluations of other kinds")
    assert told(other, *taken) == "measured on cpu: the rate of 8 trainings"
    assert told(other) == "assumed: 45 GFLOP/s a core, and no start-up"
    assert told(work(kind="extend"), *taken) == "measured on cpu: 8 trainings"


def test_unknown_work_is_as_long_as_that_of_the_same_question() -> None:
    def asked(flops: float, question: str = "q") -> Workload:
        return reading("downstream", flops, question=question, tokens=None)

    taken = [Timing(asked(1e6), 10.0), Timing(asked(1e6), 12.0), Timing(asked(1e6), 11.0)]
    calibration = Calibration({CPU: taken})
    found = calibration.estimate(asked(3e6), this_machine())
    assert found.seconds == pytest.approx(33.0)
    assert found.source == "measured on cpu: 3 stages with the same settings"
    nothing = calibration.estimate(asked(3e6, "another"), this_machine())
    assert nothing.seconds is None
    assert nothing.source.startswith("unknown")


@pytest.mark.parametrize(("precision", "peak"), [("bfloat16", 154.8e12), ("float32", 38.7e12)])
def test_what_is_assumed_of_a_gpu(precision: str, peak: float) -> None:
    whole = work(flops=1e18, precision=precision, share=1.0)
    found = Calibration({}).estimate(whole, device_named("a6000"))
    assert found.seconds == pytest.approx(1e18 / (0.35 * peak))
    assert found.source == (
        "assumed: 35% of the peak of a6000, and neither start-up nor communication"
    )
    half = Calibration({}).estimate(dataclasses.replace(whole, share=0.5), device_named("a6000"))
    assert half.seconds == pytest.approx(2 * (found.seconds or 0))


def test_other_devices_and_precisions_tell_nothing() -> None:
    on_a6000 = [Timing(work(share=1.0), 100.0)]
    calibration = Calibration({"a6000": on_a6000})
    a6000, h100 = device_named("a6000"), device_named("h100")
    assert calibration.estimate(work(share=1.0), a6000).source.startswith("measured on a6000")
    assert calibration.estimate(work(share=1.0), h100).source.startswith("assumed")
    half = work(share=1.0, precision="bfloat16")
    assert calibration.estimate(half, a6000).source.startswith("assumed")
    assert calibration.most_measured() == "a6000"
    assert Calibration({CPU: on_a6000}).most_measured() is None


RAN: dict[str, Any] = {
    "device": CPU,
    "processor": processor(),
    "threads": 1,
    "workers": 1,
    "planned_workers": 1,
    "work": asdict(work()),
}


def finished(store: Store, key: str, **changes: Any) -> Path:
    """A finished stage that took a second of the processor in ten by the clock."""
    folder = store.folder("pretrain", key)
    with folder.begin("test", {}) as attempt:
        attempt.finish({}, {**RAN, **changes})
    return as_long_as_said(folder.path / "DONE")


def as_long_as_said(path: Path) -> Path:
    """Let the attempt that wrote DONE have taken 10 s, and 1 s of the processor."""
    done = json.loads(path.read_text())
    path.write_text(json.dumps(done | {"seconds": 10.0, "ran": done["ran"] | {"cpu_seconds": 1.0}}))
    return path


def seconds_learnt(store: Store, device: str = CPU, **changes: Any) -> float | None:
    found = calibrate(store).estimate(work(**changes), device_named(device))
    return None if found.source.startswith("assumed") else found.seconds


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 1.0),
        ({"threads": 2}, 10.0),
        ({"planned_workers": 2}, 10.0),
        ({"processor": "another"}, None),
        ({"device": None}, None),
        ({"device": "Tesla K80"}, None),
        ({"work": {"x": 1}}, None),
    ],
)
def test_a_stage_alone_on_a_thread_counts_by_its_processor_and_others_by_the_clock(
    tmp_path: Path, changes: dict[str, Any], expected: float | None
) -> None:
    """What ran elsewhere is not used."""
    store = Store(tmp_path)
    finished(store, "one", **changes)
    assert seconds_learnt(store) == pytest.approx(expected)


def resumed(store: Store, made_on: str = "a", resumed_on: str = "a", **changes: Any) -> Path:
    """A finished stage that was resumed from a checkpoint, after 30 s and 4 s of the processor.

    The attempt that finished it took what `finished` says.
    """
    folder = store.folder("pretrain", "resumed")
    with folder.begin("test", {}, made_by={"device": made_on}) as attempt:
        saved = attempt.writer.save_checkpoint(
            1, lambda path: (path / "x").write_text("x") and None
        )
    manifest = saved.path / "manifest.json"
    text = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(text | {"seconds": 30.0, "cpu_seconds": 4.0}))
    with folder.begin("test", {}, made_by={"device": resumed_on}) as attempt:
        attempt.finish({}, {**RAN, **changes})
    return as_long_as_said(folder.path / "DONE")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 4.0 + 1.0),
        ({"threads": 2}, 30.0 + 10.0),  # by the clock
        # It went on elsewhere, perhaps with fewer workers, or perhaps did all its work again.
        ({"resumed_on": "b"}, None),
        ({"planned_workers": 2}, None),
        ({"work": asdict(reading("perplexity"))}, None),
    ],
)
def test_a_resumed_training_counts_with_all_the_work_in_its_result(
    tmp_path: Path, changes: dict[str, Any], expected: float | None
) -> None:
    store = Store(tmp_path)
    resumed(store, **changes)
    assert seconds_learnt(store) == pytest.approx(expected)


@pytest.mark.parametrize("what", [None, "missing", {"seconds": "30"}])
def test_a_resumed_stage_that_does_not_know_its_time_is_not_used(
    tmp_path: Path, what: object
) -> None:
    store = Store(tmp_path)
    path = resumed(store)
    done = json.loads(path.read_text())
    done["ran"]["resumed_time"] = what
    if what == "missing":
        del done["ran"]["resumed_time"]
    path.write_text(json.dumps(done))
    assert seconds_learnt(store) is None


def test_a_gpu_counts_by_the_clock(tmp_path: Path) -> None:
    store = Store(tmp_path)
    whole = work(share=1.0)
    finished(store, "one", device="NVIDIA RTX A6000", work=asdict(whole))
    assert seconds_learnt(store, "a6000", share=1.0) == pytest.approx(10.0)


@pytest.mark.parametrize(("threads", "faster"), [(1, 1.0), (2, 1 / 0.62), (4, 1 / 0.43)])
def test_threads_divide_a_part_of_the_time(threads: int, faster: float) -> None:
    """By Amdahl's law, 0.76 of it in parallel, from an assumed rate and from a measured one."""
    one, several = work(), work(threads=threads)
    for timings in ({}, {CPU: [Timing(one, 100.0)]}):
        calibration, cpu = Calibration(timings), device_named(CPU)
        alone, together = (calibration.estimate(each, cpu) for each in (one, several))
        assert alone.seconds is not None
        assert together.seconds == pytest.approx(alone.seconds / faster)


def test_what_was_measured_on_several_threads_is_estimated_as_it_was() -> None:
    several = work(threads=4)
    calibration = Calibration({CPU: [Timing(several, 100.0)]})
    assert calibration.estimate(several, device_named(CPU)).seconds == pytest.approx(100.0)
    alone = calibration.estimate(work(), device_named(CPU)).seconds
    assert alone == pytest.approx(100.0 / 0.43)
    same = replace(work(threads=2), tokens=None)
    unknown = Calibration({CPU: [Timing(same, 50.0)]})
    found = unknown.estimate(replace(same, threads=1), device_named(CPU)).seconds
    assert found == pytest.approx(50.0 / 0.62)


SHARED = (
    kept_sweep.PRETRAIN
    + """\
  passkey: {kind: passkey, from: pretrain, lengths: [32], form: symbolic, trials: 96,
            batch_tokens: 1024, resources: {workers: WORKERS}}
"""
)


def test_a_worker_of_an_evaluation_has_its_share_of_the_work(tmp_path: Path) -> None:
    alone, pair = (
        workload_of(stage)
        for workers in "12"
        for stage in load(tmp_path, SHARED.replace("WORKERS", workers)).stages
        if stage.kind == "passkey"
    )
    assert (alone.tokens, pair.tokens, alone.width) == (96 * 32, 96 * 16, 32)
    assert alone.flops is not None
    assert pair.flops == alone.flops / 2


# The seconds that the controller orders stages by


def test_the_controller_gets_the_forecasts_that_the_plan_prints(tmp_path: Path) -> None:
    sweep, store = load(tmp_path, BASE), Store(tmp_path / "store")
    planned = estimate_plans([plan(sweep, store)], store).forecasts
    seconds = without_gaps(forecast_seconds(sweep.stages, store))
    assert seconds.keys() == planned.keys()
    known = {key: one.seconds for key, one in planned.items() if one.seconds is not None}
    assert known
    assert {key: seconds[key] for key in known} == known


def test_every_stage_has_seconds_even_where_nothing_is_known(tmp_path: Path) -> None:
    """Stages on GPUs without a GPU that is named or measured, and work unknown until run."""
    on_gpus = {f"stages.{name}.resources": {"gpus": 1} for name in BASE["stages"]}
    sweep, store = load(tmp_path, changed(BASE, on_gpus)), Store(tmp_path / "store")
    seconds = without_gaps(forecast_seconds(sweep.stages, store))
    assert seconds.keys() == {stage.key for stage in sweep.stages}
    assert all(value > 0 for value in seconds.values())
    trainings = [stage for stage in sweep.stages if stage.spec.trains]
    slow, fast = (
        without_gaps(forecast_seconds(trainings, store, name)) for name in ("rtx-3090", "h200")
    )
    assert all(fast[key] < slow[key] for key in slow)
    with pytest.raises(SweepError, match="did you mean 'h200'"):
        forecast_seconds(sweep.stages, store, "h20")
