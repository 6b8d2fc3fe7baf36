"""Times learnt from stages that ran: a known law is found again, and every way to fall back."""

from __future__ import annotations

import dataclasses
import json
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.devices import CPU, device_named, this_machine
from fope_lab.planning import calibration
from fope_lab.planning.bfloat16 import bfloat16_share
from fope_lab.planning.calibration import Calibration, calibrate
from fope_lab.planning.time_model import Timing, fit_time_model
from fope_lab.planning.workload import Workload
from fope_lab.processor import processor
from fope_lab.store import Store

LAW = (2.0, 0.01, 4e-6, 5e-11)


def work(batches: int = 100, tokens: int = 100_000, flops: float = 1e12, **other: Any) -> Workload:
    fields: dict[str, Any] = {
        "kind": "pretrain",
        "family": "training",
        "question": "q",
        "embedding": "rotary",
        "precision": "float32",
        "share": 0.0,
    }
    return Workload(**(fields | {"batches": batches, "tokens": tokens, "flops": flops} | other))


def reading(kind: str, flops: float = 1e11, **other: Any) -> Workload:
    sizes = {"batches": 10, "tokens": 50_000, "flops": flops}
    return work(**(sizes | {"kind": kind, "family": "evaluation"} | other))


def true_seconds(one: Workload) -> float:
    terms = (1.0, one.batches or 0, one.tokens or 0, one.flops or 0)
    return sum(c * x for c, x in zip(LAW, terms, strict=True))


def many(count: int, seed: int = 0) -> list[Workload]:
    """Works of sizes over three orders of magnitude."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        batches = int(10 ** draw.uniform(1, 3.5))
        tokens = batches * draw.choice([512, 2048, 8192])
        found.append(work(batches, tokens, tokens * 10 ** draw.uniform(5.5, 7.5)))
    return found


def test_a_known_law_is_found_again() -> None:
    law = fit_time_model(Timing(one, true_seconds(one)) for one in many(40))
    assert law is not None
    for one in many(20, seed=1):
        assert law.seconds(one) == pytest.approx(true_seconds(one), rel=0.05)


def test_noise_and_outliers_do_not_carry_it_away() -> None:
    """Errors of 10 %, and every eighth stage five times too slow."""
    draw = random.Random(2)
    taken = [
        Timing(one, true_seconds(one) * draw.lognormvariate(0, 0.1) * (5 if i % 8 == 0 else 1))
        for i, one in enumerate(many(60))
    ]
    law = fit_time_model(taken)
    assert law is not None
    errors = sorted(abs(law.seconds(one) / true_seconds(one) - 1) for one in many(40, seed=3))
    assert errors[20] < 0.1
    assert errors[-1] < 0.35


def test_an_embedding_that_costs_more_is_told_apart() -> None:
    works = [dataclasses.replace(one, embedding=e) for one in many(20) for e in ("rotary", "fire")]
    taken = [
        Timing(one, true_seconds(one) * (1.5 if one.embedding == "fire" else 1.0)) for one in works
    ]
    law = fit_time_model(taken)
    assert law is not None
    [new] = many(1, seed=9)
    ratio = law.seconds(dataclasses.replace(new, embedding="fire")) / law.seconds(new)
    assert ratio == pytest.approx(1.5, rel=0.1)


def test_one_size_gives_its_rate() -> None:
    law = fit_time_model([Timing(work(flops=1e12), 50.0), Timing(work(flops=1e12), 52.0)])
    assert law is not None
    assert law.seconds(work(flops=4e12)) == pytest.approx(4 * 51.0)


def test_two_sizes_give_start_up_and_rate() -> None:
    law = fit_time_model([Timing(work(flops=1e12), 12.0), Timing(work(flops=3e12), 32.0)])
    assert law is not None
    assert law.seconds(work(flops=2e12)) == pytest.approx(22.0, rel=0.05)


RATE = 2e10  # FLOP/s
TINY = 1e8  # FLOPs of a batch, which takes 0.005 s of them and 0.015 s beside them


def tiny(batches: int, flops: float = TINY) -> Workload:
    return work(batches, 1000 * batches, flops * batches)


@pytest.mark.parametrize("sizes", [[100], [100, 400]])
def test_a_larger_model_is_not_as_slow_for_each_flop_as_a_tiny_one(sizes: list[int]) -> None:
    """Of a tiny model most time is that of its batches, whose number stays the same."""
    taken = [Timing(tiny(batches), 0.02 * batches) for batches in sizes]
    law = fit_time_model(taken, RATE)
    assert law is not None
    for batches in (10, 100, 5000):  # models of the same size take what they took
        assert law.seconds(tiny(batches)) == pytest.approx(0.02 * batches, rel=0.02)
    larger = law.seconds(tiny(1000, 50 * TINY))
    assert larger == pytest.approx(1000 * (0.015 + 50 * TINY / RATE), rel=0.02)
    without = fit_time_model(taken)
    assert without is not None
    assert without.seconds(tiny(1000, 50 * TINY)) == pytest.approx(1000, rel=0.02)


def test_what_is_faster_than_assumed_or_of_several_sizes_says_its_own_rate() -> None:
    fast = [Timing(tiny(100), 100 * TINY / (3 * RATE))]
    several = [Timing(tiny(100), 2.0), Timing(tiny(100, 5 * TINY), 10.0)]
    for taken in (fast, several):
        law, without = fit_time_model(taken, RATE), fit_time_model(taken)
        assert law == without
        assert law is not None


def test_a_plan_for_a_larger_model_assumes_the_rate_of_the_device() -> None:
    cpu = this_machine()
    found = Calibration({CPU: [Timing(tiny(100), 2.0)]}).estimate(tiny(1000, 50 * TINY), cpu)
    rate = cpu.assumed_rate("float32")
    assert found.seconds == pytest.approx(1000 * (0.02 - TINY / rate + 50 * TINY / rate))
    assert found.source == "measured on cpu: 1 training"


def test_nothing_gives_no_law() -> None:
    assert fit_time_model([]) is None


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 5000),
            st.integers(1, 10**7),
            st.floats(1e6, 1e15),
            st.floats(0.1, 1e5),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 5000),
    st.integers(1, 10**7),
    st.floats(1e6, 1e15),
    st.sampled_from([0.0, 1e3, 2e10]),
)
def test_more_work_never_takes_less_time(
    measured: list[tuple[int, int, float, float]],
    batches: int,
    tokens: int,
    flops: float,
    rate: float,
) -> None:
    """Whatever was measured, however little sense it makes."""
    timings = (Timing(work(b, t, f), seconds) for b, t, f, seconds in measured)
    law = fit_time_model(timings, rate)
    assert law is not None
    base = law.seconds(work(batches, tokens, flops))
    assert base > 0
    more = [(2 * batches, tokens, flops), (batches, 2 * tokens, flops)]
    assert all(law.seconds(work(*one)) >= base for one in more)
    assert law.seconds(work(batches, tokens, 2 * flops)) > base


def test_each_way_to_fall_back_says_so() -> None:
    cpu = this_machine()
    taken = [Timing(one, true_seconds(one)) for one in many(8)]
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
        return reading("downstream", flops, question=question, batches=None, tokens=None)

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


@pytest.fixture(params=["avx512_bf16", "", None])
def instruction(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """An instruction for bfloat16, none, and no knowledge of it."""
    found: str | None = request.param
    monkeypatch.setattr(calibration, "bfloat16_instruction", lambda: found)
    return found


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_other_precision_tells_a_cpu_that_has_both(
    precision: str, instruction: str | None
) -> None:
    cpu, share = this_machine(), bfloat16_share(128)
    other = "float32" if precision == "bfloat16" else "bfloat16"
    taken = Calibration({CPU: [Timing(work(precision=other), 100.0)]})
    found = taken.estimate(work(precision=precision, width=128), cpu)
    if not instruction:
        assert found.source.startswith("assumed")
        return
    expected = 100.0 * (share if precision == "bfloat16" else 1 / share)
    assert found.seconds == pytest.approx(expected)
    words = f"in {other}; {precision} by the width of the model"
    assert found.source == f"measured on cpu: 1 training {words}"
    assert taken.estimate(work(precision=precision), cpu).source.startswith("assumed"), "no width"


@pytest.mark.parametrize("instruction", ["avx512_bf16"], indirect=True)
def test_the_other_precision_is_asked_last_and_never_of_a_gpu(instruction: str | None) -> None:
    narrow = work(precision="bfloat16", width=128)
    both = [Timing(work(), 100.0), Timing(narrow, 80.0)]
    found = Calibration({CPU: both}).estimate(narrow, this_machine())
    assert (found.seconds, found.source) == (pytest.approx(80.0), "measured on cpu: 1 training")
    rate = Calibration({CPU: both[1:]}).estimate(reading("passkey", width=128), this_machine())
    assert rate.source == (
        "measured on cpu: the rate of 1 training in bfloat16; float32 by the width of the model"
    )
    on_gpu = Calibration({"a6000": [Timing(work(share=1.0), 100.0)]})
    asked = replace(narrow, share=1.0)
    assert on_gpu.estimate(asked, device_named("a6000")).source.startswith("assumed")


RAN: dict[str, Any] = {
    "device": CPU,
    "processor": processor(),
    "threads": 1,
    "workers": 1,
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


def test_a_stage_alone_on_a_thread_counts_by_its_processor(tmp_path: Path) -> None:
    store = Store(tmp_path)
    finished(store, "one")
    assert seconds_learnt(store) == pytest.approx(1.0)


@pytest.mark.parametrize("changes", [{"threads": 2}, {"workers": 2}, {"planned_workers": 2}])
def test_several_threads_or_workers_count_by_the_clock(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    store = Store(tmp_path)
    finished(store, "one", **changes)
    assert seconds_learnt(store) == pytest.approx(10.0)


@pytest.mark.parametrize(
    "changes",
    [{"processor": "another"}, {"device": None}, {"device": "Tesla K80"}, {"work": {"x": 1}}],
)
def test_what_ran_elsewhere_is_not_used(tmp_path: Path, changes: dict[str, Any]) -> None:
    store = Store(tmp_path)
    finished(store, "one", **changes)
    assert seconds_learnt(store) is None


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


def test_a_resumed_training_counts_with_all_the_work_in_its_result(tmp_path: Path) -> None:
    store = Store(tmp_path)
    resumed(store)
    assert seconds_learnt(store) == pytest.approx(4.0 + 1.0)


def test_a_resumed_training_on_several_threads_counts_by_the_clock(tmp_path: Path) -> None:
    store = Store(tmp_path)
    resumed(store, threads=2)
    assert seconds_learnt(store) == pytest.approx(30.0 + 10.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"resumed_on": "b"},
        {"workers": 2},
        {"planned_workers": 2},
        {"work": asdict(reading("perplexity"))},
    ],
)
def test_a_resumed_stage_whose_work_is_not_one_of_its_kind_is_not_used(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """It went on elsewhere, perhaps with fewer workers, or perhaps did all its work again."""
    store = Store(tmp_path)
    resumed(store, **changes)
    assert seconds_learnt(store) is None


@pytest.mark.parametrize("what", [None, "missing", {"seconds": "30"}])
def test_a_resumed_stage_that_does_not_know_its_time_is_not_used(
    tmp_path: Path, what: object
) -> None:
    store = Store(tmp_path)
    path = resumed(store)
    done = json.loads(path.read_text())
    done["ran"]["resumed_time"] = what
    if what == "missing":  # an old version wrote it
        del done["ran"]["resumed_time"]
    path.write_text(json.dumps(done))
    assert seconds_learnt(store) is None


def test_a_record_of_another_version_is_not_used(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = finished(store, "one")
    done = json.loads(path.read_text())
    del done["ran"]["threads"]
    path.write_text(json.dumps(done))
    assert seconds_learnt(store) is None


def test_a_record_without_the_width_of_the_model_is_used(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old = asdict(work())
    del old["width"]
    finished(store, "one", work=old)
    assert seconds_learnt(store) == pytest.approx(1.0)


def test_an_attempt_that_goes_on_says_so(tmp_path: Path) -> None:
    folder = Store(tmp_path).folder("pretrain", "key")
    with folder.begin("test", {}) as attempt:
        attempt.writer.save_checkpoint(1, lambda path: (path / "x").write_text("x") and None)
    with folder.begin("test", {}) as attempt:
        attempt.finish({}, RAN)
    assert json.loads((folder.path / "DONE").read_text())["ran"]["resumed"] is True


def test_a_stage_of_an_older_version_is_not_used(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.folder("pretrain", "key").begin("test", {}) as attempt:
        attempt.finish({})
    assert list(store.execution_records()) == []
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
