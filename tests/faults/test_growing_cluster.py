"""A cluster that grows by Ray's own autoscaler, whose nodes are more raylets on this machine."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator

import psutil
import pytest
import yaml
from conftest import MODEL  # type: ignore[attr-defined]
from test_submit_cluster import HEAD, REPOSITORY, Cluster, started, wait

from fope_lab.sweep import load_sweep

pytestmark = pytest.mark.faults

SWEEP = f"""
name: growing
stages:
{MODEL}    train: {{tokens: 10240, batch_tokens: 512, learning_rate: 1e-3}}
    resources: {{cpus: 2}}
prepare: {{resources: {{cpus: 2}}}}
"""


class Growing(Cluster):
    """A head with one CPU, and at most one node with two, which starts when it is asked for."""

    def start(self) -> None:
        gcs, dashboard, client, _ = self._ports
        self.address = f"{HEAD}:{gcs}"
        config = {
            "cluster_name": "growing",
            "max_workers": 1,
            "idle_timeout_minutes": 5,
            "upscaling_speed": 1.0,
            "provider": {"type": "fake_multinode", "gcs_address": self.address},
            "auth": {},
            "head_node_type": "ray.head.default",
            "available_node_types": {
                "ray.head.default": {
                    "resources": {"CPU": 1},
                    "node_config": {},
                    "min_workers": 0,
                    "max_workers": 0,
                },
                "small": {
                    "resources": {"CPU": 2},
                    "node_config": {},
                    "min_workers": 0,
                    "max_workers": 1,
                },
            },
        }
        lists = ("cluster_synced_files", "rsync_exclude", "rsync_filter", "setup_commands")
        commands = ("initialization", "head_setup", "worker_setup", "head_start_ray")
        names = (*lists, *(f"{name}_commands" for name in (*commands, "worker_start_ray")))
        config |= {"file_mounts": {}, "file_mounts_sync_continuously": False}
        config |= {name: [] for name in names}
        path = self.folder / "autoscaler.yaml"
        path.write_text(yaml.safe_dump(config))
        arguments = (
            f"--head --num-cpus=1 --node-ip-address={HEAD} --port={gcs}"
            f" --temp-dir={self.folder}/head --dashboard-host=127.0.0.1"
            f" --dashboard-port={dashboard} --ray-client-server-port={client} --block --num-gpus=0"
            " --min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0"
            f" --autoscaling-config={path}"
        )
        program = [sys.executable, "-m", "ray.scripts.scripts", "start"]
        pretends = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "5"}
        self._start([*program, *shlex.split(arguments)], PYTHONPATH=str(REPOSITORY), **pretends)
        wait(lambda: self._nodes() == 1, "the head")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Growing]:
    with started(Growing) as cluster:
        yield cluster


def running(cluster: Growing, sweep: str) -> subprocess.Popen[str]:
    path = cluster.folder / "sweep.yaml"
    path.write_text(sweep)
    place = ("--store", str(cluster.store.root), "--address", cluster.address)
    return subprocess.Popen(
        [sys.executable, "-m", "fope_lab.cli", "run", str(path), *place],
        cwd=cluster.folder,
        env=cluster.environment | {"PYTHONPATH": str(REPOSITORY), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_what_no_node_type_can_hold_is_an_error_before_anything_starts(cluster: Growing) -> None:
    with running(cluster, SWEEP.replace("cpus: 2}\nprepare", "cpus: 3}\nprepare")) as process:
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 2, output
    assert "\nerror: pretrain[seed=0] needs 3 CPU: ray.head.default has 1 CPU, 0 GPU" in output
    assert "; small has 2 CPU, 0 GPU; node 127.0.0.2 has 1 CPU, 0 GPU\n" in output
    assert "attempts" not in {path.name for path in cluster.store.root.glob("*/*/*")}


def test_a_cluster_that_grows_is_asked_and_waited_for(cluster: Growing) -> None:
    [autoscaler] = [
        process
        for process in psutil.Process().children(recursive=True)
        if any(word.endswith("/autoscaler/_private/monitor.py") for word in process.cmdline())
    ]
    told = r"waiting +for a slot of 2 CPU, asked for \d+ s ago; the cluster has [13] CPU, 0 GPU"
    autoscaler.suspend()  # or the node may be there before the run speaks of it
    late = threading.Timer(120, autoscaler.resume)
    late.start()
    try:
        with running(cluster, SWEEP) as process:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if re.search(told, line):
                    autoscaler.resume()
    finally:
        late.cancel()
        autoscaler.resume()
    output = "".join(lines)
    assert process.returncode == 0, output
    assert re.search(told, output), output
    for stage in load_sweep(cluster.folder / "sweep.yaml").stages:
        assert cluster.store.folder(stage.kind, stage.key).is_done()
