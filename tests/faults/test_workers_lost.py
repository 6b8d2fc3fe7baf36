"""Workers of a group killed for real, and the whole of it interrupted: same numbers as without."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from workers_sweep import alone, losses, worker_processes

from fope_lab.store import StageFolder
from fope_lab.sweep import load_sweep

pytestmark = pytest.mark.faults

SWEEP = """
name: faults
seeds: [0]
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: fope
    data: {corpus: python-docs, length: 32}
    train: {tokens: 204800, batch_tokens: 512, learning_rate: 1e-3, checkpoint_every: 20,
            log_every: 1}
    resources: {workers: 2, strategy: STRATEGY}
"""


@pytest.fixture
def run(run, request):  # type: ignore[no-untyped-def]
    """A training by two workers, of the strategy that the test names."""
    run.sweep.write_text(SWEEP.replace("STRATEGY", request.param))
    run.stages = load_sweep(run.sweep).stages
    return run


def saved_by(folder: StageFolder, token: int) -> bool:
    """Whether an attempt has saved a checkpoint, and the stage is not done."""
    checkpoint = folder.checkpoint()
    return checkpoint is not None and checkpoint.token == token and not folder.is_done()


def assert_as_if_nothing_had_happened(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    run.assert_complete()
    [stage] = [stage for stage in run.stages if stage.kind == "pretrain"]
    reference = alone(stage, run.stages, run.store, tmp_path / "alone")
    assert losses(run.folder(stage)) == pytest.approx(losses(reference), abs=1e-5)


@pytest.mark.parametrize("run", ["ddp"], indirect=True)
def test_workers_killed_one_after_another(run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """First the one that writes nothing, then the one that writes, at last who waits for them."""
    driver = run.start()
    [folder] = run.of_kind("pretrain")
    victims = {
        1: lambda: worker_processes(folder)[-1][1],
        2: lambda: worker_processes(folder)[-1][0],
        3: lambda: folder.attempts.newest().details["pid"],
    }
    for token, victim in victims.items():
        run.wait(lambda token=token: saved_by(folder, token))
        os.kill(victim(), signal.SIGKILL)
    run.finish(driver)
    for token in (1, 2):
        record = folder.attempts.record(token)
        assert record.ending == "interrupted"
        assert "lost workers" in record.end["error"]
    assert folder.attempts.record(3).end is None
    record = folder.attempts.newest()
    assert record.token == 4
    assert record.details["resumed_from"]["step"] >= 60
    assert_as_if_nothing_had_happened(run, tmp_path)


@pytest.mark.parametrize("run", ["fsdp"], indirect=True)
def test_interrupted_by_ctrl_c_it_leaves_no_lease_and_no_process(run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    driver = run.start()
    [folder] = run.of_kind("pretrain")
    run.wait(lambda: saved_by(folder, 1))
    [processes] = worker_processes(folder)
    os.killpg(driver.pid, signal.SIGINT)
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 130, output
    assert "Traceback" not in output
    assert folder.attempts.newest().end["outcome"] == "interrupted"
    until = time.monotonic() + 20
    while any(map(psutil.pid_exists, processes)):
        assert time.monotonic() < until, "workers go on"
        time.sleep(0.1)
    run.finish()
    assert folder.attempts.newest().details["resumed_from"]["step"] >= 20
    assert_as_if_nothing_had_happened(run, tmp_path)
