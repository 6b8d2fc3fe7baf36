"""A real cluster of two nodes on this machine: token authentication, MLflow, one shared store."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import requests
import yaml
from conftest import MODEL  # type: ignore[attr-defined]

from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep

pytestmark = pytest.mark.faults

REPOSITORY = Path(__file__).parents[2]
HEAD, NODE = "127.0.0.2", "127.0.0.3"  # Ray takes 127.0.0.1 for another of its addresses
TOKEN = "a-secret-of-some-length-0123456789"
SWEEP = """
name: on-a-cluster
plugins: [./mine.py]
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: rope
    data:
      length: 32
      mix: [{corpus: python-docs}, {corpus: {files: "texts/*.txt"}}]
    train: {tokens: 10240, batch_tokens: 512, learning_rate: 1e-3}
  perplexity: {kind: perplexity, from: pretrain, corpus: python-docs, lengths: [32], tokens: 2048}
grid:
  pretrain.embedding: [rope, mine]
"""
PLUGIN = """
from dataclasses import dataclass
from fope_lab.embeddings.alibi import Alibi

@dataclass(frozen=True, kw_only=True)
class Mine(Alibi, name="mine", source="this file"):
    pass
"""
LONG = f"""
name: long
stages:
{MODEL}    train: {{tokens: 1024000000, batch_tokens: 512, learning_rate: 1e-3}}
"""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((HEAD, 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def wait(condition: Callable[[], object], what: str, seconds: float = 240) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {seconds} s"
        time.sleep(0.2)


def family(pid: int) -> list[int]:
    """A process, its children, theirs, and so on."""
    listed = subprocess.run(["ps", "-eo", "ppid=,pid="], check=True, capture_output=True, text=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    found = [pid]
    for one in found:
        found += [child for parent, child in pairs if parent == one]
    return found


class Cluster:
    """A head without CPUs, a node with two, and an MLflow server, all with their own folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder / "store")
        self._processes: list[subprocess.Popen[bytes]] = []
        gcs, dashboard, client, tracking = free_ports(4)
        self.url, self.tracking_uri = (
            f"http://127.0.0.1:{dashboard}",
            f"http://127.0.0.1:{tracking}",
        )
        (folder / "token").write_text(TOKEN)
        # Were anything but the code of the job imported, it would be this.
        (folder / "wrong" / "fope_lab").mkdir(parents=True)
        (folder / "wrong" / "fope_lab" / "__init__.py").write_text("raise ImportError('not me')")
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "FOPE_", "MLFLOW_"))
        }
        self.environment = kept | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self._ports = gcs, dashboard, client, tracking

    def start(self) -> None:
        gcs, dashboard, client, tracking = self._ports
        folder = self.folder
        self._start_mlflow(tracking)
        common = "--block --num-gpus=0 --min-worker-port=0 --max-worker-port=0"
        common += " --dashboard-agent-listen-port=0"
        self._start_ray(
            f"--head --num-cpus=0 --node-ip-address={HEAD} --port={gcs} --temp-dir={folder}/head "
            f"--dashboard-host=127.0.0.1 --dashboard-port={dashboard} "
            f"--ray-client-server-port={client} {common}"
        )
        wait(lambda: self._nodes() == 1, "the head")
        self._start_ray(
            f"--address={HEAD}:{gcs} --num-cpus=2 --node-ip-address={NODE} "
            f"--temp-dir={folder}/node {common}"
        )
        wait(lambda: self._nodes() == 2, "the second node")
        wait(lambda: self._answers(f"{self.tracking_uri}/health"), "MLflow")

    def fope_lab(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """The command, as somebody runs it who can reach the cluster."""
        return subprocess.run(
            [sys.executable, "-m", "fope_lab.cli", *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def submit(self, sweep: Path, *more: str, **env: str) -> subprocess.CompletedProcess[str]:
        options = ["--address", self.url, "--store", str(self.store.root)]
        options += ["--tracking-uri", self.tracking_uri]
        return self.fope_lab("submit", str(sweep), *options, *more, **env)

    def stop_job(self, job: str) -> None:
        answer = requests.post(f"{self.url}/api/jobs/{job}/stop", headers=self._headers, timeout=30)
        answer.raise_for_status()
        wait(lambda: self._status(job) == "STOPPED", f"the end of {job}")

    def workers(self, node: str) -> set[int]:
        """The processes that ever worked on a node; each has written a log there."""
        logs = (self.folder / node).glob("session_2*/logs/worker-*.out")
        return {int(path.stem.rpartition("-")[2]) for path in logs}

    def close(self) -> None:
        for process in reversed(self._processes):
            for pid in family(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()

    def _status(self, job: str) -> str:
        details = requests.get(f"{self.url}/api/jobs/{job}", headers=self._headers, timeout=30)
        return str(details.json()["status"])

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {TOKEN}"}

    def _nodes(self) -> int:
        with contextlib.suppress(requests.ConnectionError, requests.JSONDecodeError):
            url = f"{self.url}/nodes?view=summary"
            summary = requests.get(url, headers=self._headers, timeout=30).json()["data"]["summary"]
            return sum(node["raylet"].get("state") == "ALIVE" for node in summary)
        return 0

    def _answers(self, url: str) -> bool:
        with contextlib.suppress(requests.ConnectionError):
            return requests.get(url, timeout=30).ok
        return False

    def _start_mlflow(self, port: int) -> None:
        """The server that cluster.yaml starts on the head."""
        config = yaml.safe_load((REPOSITORY / "cluster.yaml").read_text())
        [command] = [c for c in config["head_start_ray_commands"] if "mlflow server" in c]
        settings = dict(re.findall(r"--setenv (\w+)=(\w+)", command))
        arguments = command.partition("mlflow server")[2].replace("$HOME", str(self.folder))
        words = [str(port) if word == "5000" else word for word in shlex.split(arguments)]
        (self.folder / "mlflow").mkdir()
        self._start([sys.executable, "-m", "mlflow", "server", *words], **settings)

    def _start_ray(self, arguments: str) -> None:
        program = [sys.executable, "-m", "ray.scripts.scripts", "start"]
        wrong = str(self.folder / "wrong")
        self._start([*program, *shlex.split(arguments)], PYTHONPATH=wrong)

    def _start(self, command: list[str], **environment: str) -> None:
        with (self.folder / f"process-{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)


C = TypeVar("C", bound=Cluster)


@contextlib.contextmanager
def started(kind: type[C]) -> Iterator[C]:
    """A cluster of some kind for the length of a test."""
    # Not pytest's folder: its path leaves too little of a socket's 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="fl-"))
    cluster = kind(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started(Cluster) as cluster:
        yield cluster


def test_a_sweep_submitted_is_the_sweep_run_here(cluster: Cluster) -> None:
    (cluster.folder / "texts").mkdir()
    for name in ("one", "two"):
        (cluster.folder / "texts" / f"{name}.txt").write_text(f"{name} and so on.\n\n" * 500)
    path = cluster.folder / "sweep.yaml"
    path.write_text(SWEEP)
    (cluster.folder / "mine.py").write_text(PLUGIN)
    stages = load_sweep(path).stages

    first = cluster.submit(path)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "Perplexity" in first.stdout
    attempts = {}
    for stage in stages:
        folder = cluster.store.folder(stage.kind, stage.key)
        assert folder.is_done(), stage.label
        record = folder.attempts.newest()
        assert record is not None
        attempts[stage.key] = record.token
        assert record.details["pid"] in cluster.workers("node")
        source = cluster.store.root / "source" / f"{record.details['made_by']['source']}.json"
        assert ("mine.py" in source.read_text()) == ("mine" in stage.label), stage.label
    folders = [cluster.store.root / kind for kind in ("prepare-data", "pretrain", "perplexity")]
    done = {path.name for folder in folders for path in folder.iterdir()}
    assert done == {stage.key for stage in stages}

    status = cluster.fope_lab("status", str(path), "--store", str(cluster.store.root))
    assert status.returncode == 0
    assert f"{len(stages)} of {len(stages)} done" in status.stdout
    assert "secret" not in first.stdout + first.stderr

    again = cluster.submit(path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"{len(stages)} cached" in again.stdout
    for stage in stages:
        newest = cluster.store.folder(stage.kind, stage.key).attempts.newest_token()
        assert newest == attempts[stage.key]
    assert_one_run_for_each(cluster, {stage.key for stage in stages})


def assert_one_run_for_each(cluster: Cluster, keys: set[str]) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(cluster.tracking_uri)
    experiment = client.get_experiment_by_name("on-a-cluster")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    found = Counter(run.data.tags.get("key", "summary") for run in runs)
    assert found == Counter([*keys, "summary"])
    assert {run.info.status for run in runs} == {"FINISHED"}


def test_while_it_runs_it_is_not_submitted_again(cluster: Cluster) -> None:
    path = cluster.folder / "long.yaml"
    path.write_text(LONG)
    first = cluster.submit(path, "--no-wait")
    assert first.returncode == 0, first.stderr
    [job] = re.findall(r"^job (long-\w+-1)$", first.stdout, re.MULTILINE)
    again = cluster.submit(path)
    assert again.returncode == 2
    assert f"already submitted: job {job}, " in again.stderr

    [stage] = [s for s in load_sweep(path).stages if s.kind == "pretrain"]
    folder = cluster.store.folder(stage.kind, stage.key)
    wait(folder.checkpoint, "its first checkpoint")
    cluster.stop_job(job)
    third = cluster.submit(path, "--no-wait")
    assert third.returncode == 0, third.stderr
    wait(lambda: folder.attempts.newest_token() == 2, "the second attempt")
    record = folder.attempts.newest()
    assert record is not None
    assert record.details["resumed_from"]["step"] > 0
    cluster.stop_job(f"{job[:-1]}2")


def test_who_lacks_the_token_gets_one_clear_error(cluster: Cluster) -> None:
    path = cluster.folder / "refused.yaml"
    path.write_text(LONG.replace("name: long", "name: refused"))
    (cluster.folder / "other-token").write_text("wrong")
    wrong = cluster.submit(path, RAY_AUTH_TOKEN_PATH=str(cluster.folder / "other-token"))
    assert wrong.returncode == 2
    assert re.fullmatch(r"error: .* refuses the token from .*other-token\n", wrong.stderr)
    none = cluster.submit(path, RAY_AUTH_TOKEN_PATH="")
    assert none.returncode == 2
    assert re.fullmatch(r"error: .* needs a token, and none was sent: .*\n", none.stderr)
