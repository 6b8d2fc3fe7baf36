"""The speed of a training: its share of the devices' peak, and what its time went to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from real_training import SIZES, pretraining
from tiny_training import LENGTH, ROWS, TinyStage, batch, train_settings

from fope_lab.config.devices import known_devices
from fope_lab.data.mixture import Batch
from fope_lab.embeddings import parse_embedding
from trainers.checkpoints import read_record
from trainers.measures import steps_per_second_at_peak, why_unknown

ROPE = parse_embedding("rope")


@pytest.mark.parametrize(("precision", "peak"), [("float32", 19.5e12), ("bfloat16", 312e12)])
def test_the_peak_is_that_of_all_devices_in_the_precision(precision: str, peak: float) -> None:
    spec = pretraining(8, precision=precision)
    # Two layers of width 16 with two heads of 8: four projections, three matrices of the gated
    # feed-forward of 16, then the head; attention reads 8.5 tokens on average of 16.
    weights = 2 * (4 * 16 * 16 + 3 * 16 * 16) + 16 * SIZES.vocab_size
    attention = 2 * 2 * 2 * 8 * 8.5
    flops = 4 * 16 * 6 * (weights + attention)
    for workers in (1, 4):  # a retry may take fewer than the stage asks for
        found = steps_per_second_at_peak(spec, SIZES, ROPE, "NVIDIA A100-SXM4-80GB", workers)
        assert found == pytest.approx(workers * peak / flops)


def test_an_unknown_peak_is_not_guessed() -> None:
    spec: Any = pretraining(8)
    for name in ("cpu", "Abacus 9000"):
        assert steps_per_second_at_peak(spec, SIZES, ROPE, name, 1) is None
    assert known_devices()["a100-80gb"].peak["bfloat16"] == 312e12


def test_a_gpu_without_a_known_peak_is_named() -> None:
    unknown = why_unknown("Abacus 9000")
    assert unknown is not None
    assert "'Abacus 9000' is not in fope_lab/config/devices.yaml" in unknown
    for name in ("cpu", "NVIDIA A100-SXM4-80GB"):
        assert why_unknown(name) is None


def test_rows_and_result_have_the_utilisation_where_the_peak_is_known(tmp_path: Path) -> None:
    at_peak = 2e9
    stage = TinyStage(tmp_path / "known", train_settings(4, log_every=1), peak=at_peak)
    summary = stage.attempt()
    for row in stage.folder.rows():
        steps = row.values["tokens_per_second"] / (ROWS * LENGTH)
        assert row.values["flops_utilisation"] == pytest.approx(steps / at_peak)
    assert summary["flops_utilisation"] == pytest.approx(4 / summary["seconds"] / at_peak)
    progress = stage.folder.progress()
    assert progress["flops_utilisation"] == row.values["flops_utilisation"]
    unknown = TinyStage(tmp_path / "unknown", train_settings(4, log_every=1))
    assert "flops_utilisation" not in unknown.attempt()
    assert all("flops_utilisation" not in row.values for row in unknown.folder.rows())


def test_attempts_on_different_devices_count_with_the_peak_of_each(tmp_path: Path) -> None:
    """A retry may have fewer workers."""
    stage = TinyStage(tmp_path / "known", train_settings(6, checkpoint_every=3), peak=8e9)
    stage.interrupted_at(3)
    checkpoint = stage.folder.checkpoint()
    before = read_record(checkpoint.path)
    assert before.peak_steps == pytest.approx(8e9 * before.seconds)
    stage.peak = 1e9
    summary = stage.attempt()
    at_peak = 8e9 * before.seconds + 1e9 * (summary["seconds"] - before.seconds)
    assert summary["flops_utilisation"] == pytest.approx(6 / at_peak)
    unknown = TinyStage(tmp_path / "unknown", train_settings(6, checkpoint_every=3))
    unknown.interrupted_at(3)
    unknown.peak = 1e9
    assert "flops_utilisation" not in unknown.attempt()


def test_waiting_for_data_is_counted_over_all_attempts(tmp_path: Path) -> None:
    stage = TinyStage(tmp_path, train_settings(6, checkpoint_every=2))

    def slow(index: int) -> Batch:
        time.sleep(0.02)
        return batch(index)

    stage.interrupted_at(3)
    summary = stage.attempt(slow)
    assert 3 * 0.02 <= summary["data_seconds"] <= summary["seconds"]
    assert 0 < summary["checkpoint_seconds"] < summary["seconds"] - summary["data_seconds"]
    assert summary["validation_seconds"] == 0
    rows = [row.values for row in stage.folder.rows()]
    assert rows[-1]["data_seconds"] == summary["data_seconds"]
    for name in ("data_seconds", "checkpoint_seconds"):
        counts = [row[name] for row in rows]
        assert counts == sorted(counts)
