"""A Ray that a run has joined dies: one line says so, and the same command goes on."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest
from conftest import Run  # type: ignore[attr-defined]
from test_submit_cluster import HEAD, REPOSITORY, Cluster, family, started, wait

from fope_lab.store.folder import StageFolder

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


GO_ON = "run the same command again: it goes on from the last checkpoints"


def errors_after(run: Run, cluster: OneNode, harm: Callable[[], None]) -> list[str]:
    """The lines on standard error of a run whose cluster is harmed, which must end with code 2."""
    folders = run.of_kind("pretrain")
    tokens = {folder: folder.attempts.newest_token() for folder in folders}
    driver = subprocess.Popen(
        [*run.command, "--address", cluster.address],
        cwd=REPOSITORY,
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def has_saved(folder: StageFolder) -> bool:
        checkpoint = folder.checkpoint()
        return checkpoint is not None and checkpoint.token > tokens[folder]

    wait(lambda: any(map(has_saved, folders)) or driver.poll() is not None, "it", 200)
    harm()
    _, errors = driver.communicate(timeout=100)
    assert driver.returncode == 2, errors
    return errors.splitlines()


def test_a_raylet_that_dies_and_a_head_that_is_silent_end_the_run(run: Run) -> None:
    """One after the other, each of a cluster of its own. At last the same command goes on here."""
    with started(OneNode) as cluster:
        harm = cluster.process("/raylet").kill
        raylet = f"error: Ray's raylet on this machine has died; {GO_ON}"
        assert errors_after(run, cluster, harm) == [raylet]
    with started(OneNode) as cluster:
        harm = cluster.process("/gcs_server").suspend
        head = f"head of the Ray cluster at {cluster.address} does not answer"
        assert errors_after(run, cluster, harm) == [
            f"The {head}; waiting for it.",
            f"error: the {head}; {GO_ON}",
        ]
    run.finish()
    assert all(run.folder(stage).is_done() for stage in run.stages)
