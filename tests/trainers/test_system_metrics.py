"""What a training uses of its machine: rows of their own, outside the result."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
import torch
from tiny_training import TinyStage, train_settings

from trainers import measures as system_metrics
from trainers.measures import FIRST_SECONDS, SECONDS, SystemMonitor


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_measures_after_a_moment_and_then_in_intervals() -> None:
    clock = Clock()
    monitor = SystemMonitor(clock)
    assert monitor.measure_if_due() == {}
    clock.now = FIRST_SECONDS
    assert monitor.measure_if_due()
    clock.now += SECONDS - 0.1
    assert monitor.measure_if_due() == {}
    clock.now += 0.1
    assert monitor.measure_if_due()


def test_the_numbers_are_those_of_this_process_and_machine() -> None:
    clock = Clock()
    monitor = SystemMonitor(clock)
    until = time.process_time() + 0.3
    while time.process_time() < until:  # at work, so that the processor is used
        pass
    clock.now = FIRST_SECONDS
    found = monitor.measure_if_due()
    memory = psutil.virtual_memory()
    resident = psutil.Process().memory_info().rss / 1e6
    assert found["system/process_memory_usage_megabytes"] == pytest.approx(resident, rel=0.1)
    assert 0 < found["system/system_memory_usage_megabytes"] <= memory.total / 1e6
    assert 0 < found["system/system_memory_usage_percentage"] <= 100
    assert 0 < found["system/cpu_utilization_percentage"] <= 100
    assert found["system/process_cpu_utilization_percentage"] > 5
    assert not any("gpu" in name for name in found) or torch.cuda.is_initialized()


def test_what_the_machine_hides_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden() -> None:
        raise PermissionError("/proc/meminfo")

    clock = Clock()
    monitor = SystemMonitor(clock)
    monkeypatch.setattr(psutil, "virtual_memory", hidden)
    clock.now = FIRST_SECONDS
    assert monitor.measure_if_due() == {}


def test_a_gpu_without_nvidias_library_has_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: int) -> int:
        raise ModuleNotFoundError("pynvml")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (60_000_000, 80_000_000))
    monkeypatch.setattr(torch.cuda, "utilization", missing)
    found = system_metrics._gpu()
    assert found == {"gpu_1_memory_usage_megabytes": 20.0, "gpu_1_memory_usage_percentage": 25.0}


def test_the_values_are_rows_of_their_own_and_change_nothing_else(tmp_path: Path) -> None:
    plain = TinyStage(tmp_path / "plain", train_settings(6))
    plain.attempt()
    watched = TinyStage(tmp_path / "watched", train_settings(6))
    watched.attempt(observe=lambda: {"system/cpu_utilization_percentage": 50.0})
    rows = [(row.step, row.values) for row in watched.folder.rows()]
    own = [row for row in rows if "system/cpu_utilization_percentage" in row[1]]
    assert [step for step, _ in own] == [row.step for row in plain.folder.rows()]
    assert all(len(values) == 1 for _, values in own)
    losses = [values["loss"] for _, values in rows if "loss" in values]
    assert losses == [row.values["loss"] for row in plain.folder.rows()]
    result = watched.folder.result()
    assert not any("system" in name for name in result)
    for name, tensor in plain.final_weights().items():
        assert torch.equal(watched.final_weights()[name], tensor)
