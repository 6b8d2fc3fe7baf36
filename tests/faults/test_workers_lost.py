"""Workers of a group killed for real, the trial that waits for them too, and all of it interrupted:
same numbers as without. The same for an evaluation that two workers share, and that then fails."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from conftest import Run  # type: ignore[attr-defined]
from workers_sweep import alone, losses, worker_processes

from fope_lab.store.folder import StageFolder

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
    train: {tokens: 102400, batch_tokens: 512, learning_rate: 1e-3, checkpoint_every: 20,
            log_every: 1}
    resources: {workers: 2, strategy: STRATEGY}
"""

EVALUATED = f"""{SWEEP.replace("STRATEGY", "fsdp")}
  perplexity: &measured {{kind: perplexity, from: pretrain, corpus: python-docs,
                         lengths: [16, 32, 64], tokens: 2048, batch_tokens: 256}}
  shared: {{<<: *measured, kind: fails-late, resources: {{workers: 2}}}}
plugins: [./fails_late.py]
"""
FAILS_LATE = '''
"""Perplexity, and then an error."""
from dataclasses import dataclass

from fope_lab.evaluation.perplexity import Perplexity


@dataclass(frozen=True, kw_only=True)
class FailsLate(Perplexity, kind="fails-late"):
    """Perplexity, and then an error."""

    def run(self, context):
        from trainers.loop import NonFiniteError

        super().run(context)
        raise NonFiniteError("after all lengths")
'''


def saved_by(folder: StageFolder, token: int) -> bool:
    """Whether an attempt has saved a checkpoint, and the stage is not done."""
    checkpoint = folder.checkpoint()
    return checkpoint is not None and checkpoint.token == token and not folder.is_done()


def test_workers_and_their_trial_are_killed_and_interrupted(run: Run, tmp_path: Path) -> None:
    """First the worker that writes is killed; Ctrl-C leaves no lease and no process; at last who
    waits for the workers is killed. test_workers_elastic.py kills the one that writes nothing."""
    (tmp_path / "fails_late.py").write_text(FAILS_LATE)
    run.write(EVALUATED)
    [folder] = run.of_kind("pretrain")
    driver = run.start()
    run.wait(lambda: saved_by(folder, 1))
    os.kill(worker_processes(folder)[-1][0], signal.SIGKILL)

    run.wait(lambda: saved_by(folder, 2))
    processes = worker_processes(folder)[-1]
    os.killpg(driver.pid, signal.SIGINT)
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 130, output
    assert "Traceback" not in output
    until = time.monotonic() + 20
    while any(map(psutil.pid_exists, processes)):
        assert time.monotonic() < until, "workers go on"
        time.sleep(0.1)

    driver = run.start()
    run.wait(lambda: saved_by(folder, 3))
    os.kill(folder.attempts.newest().details["pid"], signal.SIGKILL)
    output, _ = driver.communicate(timeout=240)
    assert driver.returncode == 1, output
    first, second, third, last = (folder.attempts.record(token) for token in range(1, 5))
    assert first.ending == second.ending == "interrupted"
    assert "lost workers" in first.end["error"]
    assert third.end is None
    assert last == folder.attempts.newest()
    assert last.details["resumed_from"]["step"] >= 60

    run.assert_complete(failed="shared")
    [stage] = [stage for stage in run.stages if stage.kind == "pretrain"]
    reference = alone(stage, run.stages, run.store, tmp_path / "alone")
    assert losses(folder) == pytest.approx(losses(reference), abs=1e-5)
    assert_shared_is_measured_as_alone(run)


def assert_shared_is_measured_as_alone(run: Run) -> None:
    """Two workers, which import a plug-in, measured what one did. The error that then came of the
    work is the stage's failure, which nothing retries."""
    [alone], [shared] = run.of_kind("perplexity"), run.of_kind("fails-late")
    [processes] = worker_processes(shared)
    assert len(set(processes)) == 2
    logged = shared.paths.segment(1, 0).read_text().splitlines()
    measured = [(row["step"], row["values"]) for row in map(json.loads, logged)]
    assert measured == [(row.step, row.values) for row in alone.rows()]
    assert [step for step, _ in measured] == [16, 32, 64]
    failure = shared.attempts.newest().end
    assert failure is not None
    assert (failure["type"], failure["error"]) == ("NonFiniteError", "after all lengths")
    assert "On worker 0:" in failure["traceback"], "the worker's traceback is lost"
    assert "fails_late.py" in failure["traceback"]
    assert shared.attempts.newest_token() == 1
