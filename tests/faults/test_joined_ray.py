"""A Ray that a run has joined dies: one line says so, and the same command goes on."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest
from conftest import SWEEP
from test_submit_cluster import HEAD, REPOSITORY, Cluster, family, started, wait

from fope_lab.sweep import load_sweep

pytestmark = pytest.mark.faults


class OneNode(Cluster):
    """A head with two CPUs, and nothing else."""

    def start(self) -> None:
        gcs, dashboard, client, _ = self._ports
        self.address = f"{HEAD}:{gcs}"
        arguments = (
            f"--head --num-cpus=2 --node-ip-address={HEAD} --port={gcs}"
            f" --temp-dir={self.folder}/head --dashboard-host=127.0.0.1"
            f" --dashboard-port={dashboard} --ray-client-server-port={client} --block --num-gpus=0"
            " --min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0"
        )
        program = [sys.executable, "-m", "ray.scripts.scripts", "start"]
        self._start([*program, *shlex.split(arguments)], PYTHONPATH=str(REPOSITORY))
        wait(lambda: self._nodes() == 1, "the head")

    def process(self, name: str) -> psutil.Process:
        """The process of Ray whose program has a path that ends so."""
        processes = (psutil.Process(pid) for pid in family(self._processes[-1].pid))
        [found] = [p for p in processes if p.cmdline() and p.cmdline()[0].endswith(name)]
        return found


@pytest.fixture
def cluster() -> Iterator[OneNode]:
    with started(OneNode) as cluster:
        yield cluster


GO_ON = "run the same command again: it goes on from the last checkpoints"
RAYLET = f"error: Ray's raylet on this machine has died; {GO_ON}"


def go_on_after(cluster: OneNode, harm: Callable[[], None]) -> list[str]:
    """Harm the cluster under a run, which must end with code 2, and run the same elsewhere.

    Returns what the run printed on standard error.
    """
    path = cluster.folder / "sweep.yaml"
    path.write_text(SWEEP)
    stages = load_sweep(path).stages
    folders = [cluster.store.folder(s.kind, s.key) for s in stages if s.kind == "pretrain"]
    command = [sys.executable, "-m", "fope_lab.cli", "run", str(path)]
    driver = subprocess.Popen(
        [*command, "--store", str(cluster.store.root), "--address", cluster.address],
        cwd=REPOSITORY,
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait(lambda: any(f.checkpoint() for f in folders) or driver.poll() is not None, "it", 200)
    harm()
    _, errors = driver.communicate(timeout=100)
    assert driver.returncode == 2, errors
    done = cluster.fope_lab("run", str(path), "--store", str(cluster.store.root))
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(cluster.store.folder(s.kind, s.key).is_done() for s in stages)
    return errors.splitlines()


def test_a_raylet_that_dies_ends_the_run(cluster: OneNode) -> None:
    assert go_on_after(cluster, cluster.process("/raylet").kill) == [RAYLET]


def test_a_head_that_is_silent_ends_the_run(cluster: OneNode) -> None:
    head = f"head of the Ray cluster at {cluster.address} does not answer"
    assert go_on_after(cluster, cluster.process("/gcs_server").suspend) == [
        f"The {head}; waiting for it.",
        f"error: the {head}; {GO_ON}",
    ]
