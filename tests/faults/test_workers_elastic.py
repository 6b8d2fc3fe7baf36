"""A node lost from under a group of workers, and none in its place: the others go on without it."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from test_submit_cluster import HEAD, REPOSITORY, Cluster, family, started, wait
from test_workers_lost import SWEEP
from workers_sweep import alone, losses, worker_processes

from fope_lab.sweep import load_sweep

pytestmark = pytest.mark.faults

NODES = ("127.0.0.3", "127.0.0.4")


class SmallNodes(Cluster):
    """A head without CPUs, and nodes with one each."""

    def start(self) -> None:
        gcs, dashboard, client, _ = self._ports
        common = "--block --num-gpus=0 --min-worker-port=0 --max-worker-port=0"
        common += " --dashboard-agent-listen-port=0"
        self.address = f"{HEAD}:{gcs}"
        self._start_ray(
            f"--head --num-cpus=0 --node-ip-address={HEAD} --port={gcs} "
            f"--temp-dir={self.folder}/head --dashboard-host=127.0.0.1 "
            f"--dashboard-port={dashboard} --ray-client-server-port={client} {common}"
        )
        wait(lambda: self._nodes() == 1, "the head")
        for node in NODES:
            self._start_ray(
                f"--address={self.address} --num-cpus=1 --node-ip-address={node} "
                f"--temp-dir={self.folder}/{node[-1]} {common}"
            )
        wait(lambda: self._nodes() == 1 + len(NODES), "the nodes")

    def kill_node_of(self, worker: int) -> None:
        """Kill all processes of the node that a process runs on."""
        families = [family(process.pid) for process in self._processes[1:]]
        [node] = [pids for pids in families if worker in pids]
        for pid in node:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _start_ray(self, arguments: str) -> None:
        program = [sys.executable, "-m", "ray.scripts.scripts", "start"]
        self._start([*program, *shlex.split(arguments)], PYTHONPATH=str(REPOSITORY))


@pytest.fixture
def cluster() -> Iterator[SmallNodes]:
    with started(SmallNodes) as cluster:
        yield cluster


def test_fewer_workers_go_on_after_a_node_is_lost(cluster: SmallNodes) -> None:
    """The node of the worker that writes nothing; test_workers_lost.py kills the one that does."""
    path = cluster.folder / "sweep.yaml"
    path.write_text(SWEEP.replace("STRATEGY", "ddp"))
    stages = load_sweep(path).stages
    [stage] = [stage for stage in stages if stage.kind == "pretrain"]
    folder = cluster.store.folder(stage.kind, stage.key)
    command = [sys.executable, "-m", "fope_lab.cli", "run", str(path)]
    driver = subprocess.Popen(
        [*command, "--store", str(cluster.store.root), "--address", cluster.address],
        cwd=REPOSITORY,
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait(lambda: folder.checkpoint() or driver.poll() is not None, "a checkpoint", 200)
    assert driver.poll() is None, driver.communicate()[0]
    cluster.kill_node_of(worker_processes(folder)[-1][1])
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    assert [len(processes) for processes in worker_processes(folder)] == [2, 1]
    record = folder.attempts.newest()
    assert record is not None
    assert record.details["resumed_from"]["step"] >= 20
    [ran] = [one for one in cluster.store.execution_records() if one["planned_workers"] == 2]
    assert (ran["workers"], ran["threads"]) == (1, 1)
    reference = alone(stage, stages, cluster.store, cluster.folder / "alone")
    assert losses(folder) == pytest.approx(losses(reference), abs=1e-5)
