"""Submitting to something that speaks as the Jobs interface of a Ray cluster does."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kept_sweep
import pytest
from aiohttp import WSCloseCode, web
from ray._raylet import Config

from fope_lab.orchestration import job_package
from fope_lab.orchestration import submit as submitting
from fope_lab.orchestration.job_package import SubmitError
from fope_lab.orchestration.submit import find_token, submit
from fope_lab.sweep import load_sweep
from fope_lab.sweep.graph import Sweep

SECRET = "a-secret-of-some-length-0123456789"
SWEEP = kept_sweep.SWEEP.replace("name: kept", "name: tiny")
LOADER = """
import json, os, sys
from ray._raylet import AuthenticationTokenLoader

for place in json.loads(sys.argv[1]):
    os.environ.update(place)
    if os.fork() == 0:
        loader = AuthenticationTokenLoader.instance()
        print(loader.get_token_for_http_header()["authorization"], flush=True)
        os._exit(0)
    os.wait()
"""


class FakeCluster:
    """Ray's HTTP interface as far as submitting a job needs it, in a thread of its own."""

    def __init__(self) -> None:
        self.token: str | None = None
        self.jobs: dict[str, dict[str, Any]] = {}
        self.packages: dict[str, bytes] = {}
        self.outcome: dict[str, Any] = {"status": "SUCCEEDED", "driver_exit_code": 0}
        self.log_ends = threading.Event()
        self.log_ends.set()
        self.close_code = WSCloseCode.OK
        self.lose_race = False
        self.requests: list[str] = []
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10)

    def add(self, job: str, status: str) -> None:
        self.jobs[job] = {"type": "SUBMISSION", "submission_id": job, "entrypoint": "…"}
        self.jobs[job]["status"] = status

    def close(self) -> None:
        self.log_ends.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())

    async def _start(self) -> None:
        app = web.Application(middlewares=[self._check])
        app.add_routes(
            [
                web.get("/api/version", self._version),
                web.get("/api/jobs/", self._list),
                web.post("/api/jobs/", self._submit),
                web.get("/api/jobs/{job}", self._info),
                web.get("/api/jobs/{job}/logs/tail", self._tail),
                web.get("/api/packages/gcs/{name}", self._package),
                web.put("/api/packages/gcs/{name}", self._upload),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    @web.middleware
    async def _check(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        given = request.headers.get("Authorization")
        if self.token and given is None:
            return web.Response(status=401, text="Unauthorized: Missing authentication token")
        if self.token and given != f"Bearer {self.token}":
            return web.Response(status=403, text="Forbidden: Invalid authentication token")
        return await handler(request)

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "4", "ray_version": "2.60.0", "ray_commit": "x"})

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response([] if self.lose_race else list(self.jobs.values()))

    async def _info(self, request: web.Request) -> web.Response:
        return web.json_response(self.jobs[request.match_info["job"]])

    async def _submit(self, request: web.Request) -> web.Response:
        asked = await request.json()
        job = asked["submission_id"]
        if job in self.jobs:
            text = f"Traceback:\n  …\nValueError: Job with submission_id {job} already exists."
            return web.Response(status=500, text=text)
        self.add(job, "RUNNING")
        self.jobs[job] |= {"entrypoint": asked["entrypoint"], "runtime_env": asked["runtime_env"]}
        return web.json_response({"job_id": job, "submission_id": job})

    async def _tail(self, request: web.Request) -> web.WebSocketResponse:
        stream = web.WebSocketResponse()
        await stream.prepare(request)
        await stream.send_str("first line\n")
        while not self.log_ends.is_set():
            await asyncio.sleep(0.02)
        if self.close_code == WSCloseCode.ABNORMAL_CLOSURE:
            assert request.transport is not None
            request.transport.abort()
            return stream
        await stream.send_str("last line\n")
        self.jobs[request.match_info["job"]] |= self.outcome
        await stream.close()
        return stream

    async def _package(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if request.match_info["name"] in self.packages else 404)

    async def _upload(self, request: web.Request) -> web.Response:
        self.packages[request.match_info["name"]] = await request.read()
        return web.Response()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    cluster.close()


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No token and no address, neither in the environment nor in the home folder."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    Config.initialize("")  # Ray keeps the mode that a run before had in this process


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    path = tmp_path / "tiny.yaml"
    path.write_text(SWEEP)
    return load_sweep(path)


@pytest.fixture
def empty_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what comes after: packing takes a second or two."""

    def build(sweep: Sweep, folder: Path) -> Path:
        path = folder / "package.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("empty", "")
        return path

    monkeypatch.setattr(submitting, "build_package", build)


@pytest.fixture
def unchecked_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is in it: test_job_package.py has it planned elsewhere."""
    monkeypatch.setattr(job_package, "_require_same_keys", lambda *_: None)


def only_job(cluster: FakeCluster) -> dict[str, Any]:
    [job] = cluster.jobs.values()
    return job


@pytest.mark.usefixtures("unchecked_package")
def test_what_is_submitted(
    cluster: FakeCluster, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    code = submit(sweep, f"{cluster.url}/", store="/shared/my store", tracking_uri="http://m:5000")
    assert code == 0
    job = only_job(cluster)
    assert job["entrypoint"] == "sh start.sh"
    given = {"FOPE_LAB_STORE": "/shared/my store", "MLFLOW_TRACKING_URI": "http://m:5000"}
    assert job["runtime_env"]["env_vars"] == given
    [(name, content)] = cluster.packages.items()
    assert job["runtime_env"]["working_dir"] == f"gcs://{name}"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert f"files{sweep.path}" in archive.namelist()
    printed = capsys.readouterr()
    assert "first line\nlast line\n" in printed.out
    assert f"ray job logs --address {cluster.url} --follow {job['submission_id']}" in printed.out
    assert printed.err == ""


@pytest.mark.usefixtures("empty_package")
@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ({"status": "SUCCEEDED", "driver_exit_code": 0}, 0),
        ({"status": "FAILED", "driver_exit_code": 1}, 1),
        ({"status": "FAILED", "driver_exit_code": 2}, 2),
        ({"status": "FAILED", "driver_exit_code": 137, "message": "killed"}, 1),
        ({"status": "FAILED", "message": "the job's supervisor died"}, 1),
        ({"status": "STOPPED"}, 1),
    ],
)
def test_the_exit_code_is_that_of_the_run(
    cluster: FakeCluster,
    sweep: Sweep,
    capsys: pytest.CaptureFixture[str],
    outcome: dict[str, Any],
    code: int,
) -> None:
    cluster.outcome = outcome
    assert submit(sweep, cluster.url, store="/shared/store") == code
    assert outcome.get("message", "") in capsys.readouterr().err


@pytest.mark.usefixtures("unchecked_package")
def test_without_a_store_the_cluster_must_have_one(
    cluster: FakeCluster, sweep: Sweep, tmp_path: Path
) -> None:
    submit(sweep, cluster.url, wait=False)
    command = only_job(cluster)["entrypoint"]
    [content] = cluster.packages.values()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(tmp_path / "unpacked")
    script = tmp_path / "unpacked" / "start.sh"
    script.write_text(script.read_text().replace("exec python", "exec env; exec python"))

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path / "unpacked",
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    assert run().returncode == 2
    assert "FOPE_LAB_STORE" in run().stderr
    assert run(FOPE_LAB_STORE="/proc/nowhere").returncode == 2
    for _ in range(2):
        accepted = run(FOPE_LAB_STORE=str(tmp_path / "shared"))
        assert accepted.returncode == 0, accepted.stderr
        assert f"PYTHONPATH={tmp_path / 'shared' / 'submitted'}/tiny-" in accepted.stdout
        assert f"FOPE_LAB_STORE={tmp_path / 'shared'}\n" in accepted.stdout
    [place] = (tmp_path / "shared" / "submitted").iterdir()
    assert (place / "fope_lab" / "cli" / "__init__.py").exists()
    assert (place / "files" / sweep.path.relative_to("/")).exists()
    with pytest.raises(SubmitError, match="absolute path"):
        submit(sweep, cluster.url, store="fope-store")


@pytest.mark.usefixtures("empty_package")
def test_a_sweep_under_way_is_not_submitted_again(cluster: FakeCluster, sweep: Sweep) -> None:
    assert submit(sweep, cluster.url, store="/shared", wait=False) == 0
    first = only_job(cluster)
    assert first["submission_id"].startswith("tiny-")
    assert first["submission_id"].endswith("-1")
    for status in ("PENDING", "RUNNING"):
        first["status"] = status
        with pytest.raises(SubmitError, match=rf"job {first['submission_id']}, {status.lower()}"):
            submit(sweep, cluster.url, store="/shared")
    for status in ("SUCCEEDED", "FAILED", "STOPPED"):
        for job in cluster.jobs.values():
            job["status"] = status
        submit(sweep, cluster.url, store="/shared", wait=False)
    numbers = [job.rpartition("-")[2] for job in cluster.jobs]
    assert numbers == ["1", "2", "3", "4"]


@pytest.mark.usefixtures("empty_package")
def test_other_sweeps_under_way_do_not_matter(cluster: FakeCluster, sweep: Sweep) -> None:
    submit(sweep, cluster.url, store="/shared", wait=False)
    [name] = cluster.jobs
    only_job(cluster)["status"] = "SUCCEEDED"
    cluster.add("raysubmit_xyz", "RUNNING")
    cluster.add("tiny-00000000-1", "RUNNING")
    cluster.add("tiny", "RUNNING")
    submit(sweep, cluster.url, store="/shared", wait=False)
    assert list(cluster.jobs)[-1] == f"{name[:-1]}2"


@pytest.mark.usefixtures("empty_package")
def test_two_submissions_at_one_moment(cluster: FakeCluster, sweep: Sweep) -> None:
    submit(sweep, cluster.url, store="/shared", wait=False)
    cluster.lose_race = True
    with pytest.raises(SubmitError, match="already exists"):
        submit(sweep, cluster.url, store="/shared")


@pytest.mark.usefixtures("empty_package")
def test_interrupting_leaves_the_job_running(
    cluster: FakeCluster, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.log_ends.clear()
    # A shell has what it starts in the background ignore this signal.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        while not any(request.endswith("/logs/tail") for request in cluster.requests):
            threading.Event().wait(0.02)
        threading.Event().wait(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        submit(sweep, cluster.url, store="/shared")
    signal.signal(signal.SIGINT, previous)
    job = only_job(cluster)
    assert job["status"] == "RUNNING"
    assert not any(request.endswith("/stop") for request in cluster.requests)
    after = capsys.readouterr().out.partition("first line\n")[2]
    assert f"Job {job['submission_id']} is still running" in after
    assert f"ray job stop --address {cluster.url} {job['submission_id']}" in after


@pytest.mark.usefixtures("empty_package")
def test_a_lost_connection_says_how_to_go_on(cluster: FakeCluster, sweep: Sweep) -> None:
    cluster.close_code = WSCloseCode.ABNORMAL_CLOSURE
    with pytest.raises(SubmitError, match=r"still running(.|\n)*ray job logs"):
        submit(sweep, cluster.url, store="/shared")


@pytest.mark.usefixtures("empty_package")
@pytest.mark.parametrize("source", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "home"])
def test_the_token_is_found_where_ray_looks(
    cluster: FakeCluster,
    sweep: Sweep,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
) -> None:
    cluster.token = SECRET
    file = tmp_path / (".ray/auth_token" if source == "home" else "token")
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{SECRET}\n")
    if source != "home":
        monkeypatch.setenv(source, SECRET if source == "RAY_AUTH_TOKEN" else str(file))
    assert submit(sweep, cluster.url, store="/shared") == 0
    printed = capsys.readouterr()
    assert "RAY_AUTH_MODE=token ray job logs" in printed.out
    assert SECRET not in printed.out + printed.err + json.dumps(cluster.jobs)


@pytest.mark.usefixtures("empty_package")
def test_a_missing_or_wrong_token_is_one_clear_error(
    cluster: FakeCluster, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.token = SECRET
    with pytest.raises(SubmitError, match=r"needs a token, and none was sent: .*RAY_AUTH_TOKEN"):
        submit(sweep, cluster.url)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "wrong")
    with pytest.raises(SubmitError, match=r"refuses the token from RAY_AUTH_TOKEN$"):
        submit(sweep, cluster.url)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(SubmitError, match="none was sent because RAY_AUTH_MODE=disabled"):
        submit(sweep, cluster.url)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(SubmitError, match="none: No such file"):
        submit(sweep, cluster.url)
    (tmp_path / "none").touch()
    with pytest.raises(SubmitError, match="is empty"):
        submit(sweep, cluster.url)
    assert not cluster.jobs


@pytest.mark.usefixtures("empty_package")
def test_the_token_is_the_one_that_ray_would_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's own loader, in a process of its own for each place, prefers the same."""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text(" in-the-home-folder\n")
    (tmp_path / "file").write_text("in-a-file\n")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    places = [
        {"HOME": str(tmp_path)},
        {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "file")},
        {"RAY_AUTH_TOKEN": "in-the-environment"},
    ]
    command = [sys.executable, "-c", LOADER, json.dumps(places)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = []
    for place in places:
        for name, value in place.items():
            monkeypatch.setenv(name, value)
        token = find_token()
        assert token is not None
        found.append(token.value)
    assert found == ["in-the-home-folder", "in-a-file", "in-the-environment"]
    assert output.splitlines() == [f"Bearer {token}" for token in found]


@pytest.mark.usefixtures("empty_package")
def test_an_address_that_leads_nowhere_is_one_clear_error(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "ANSWER_SECONDS", 0.5)
    for address in ("127.0.0.1:8265", "auto", "ray://127.0.0.1:10001", "http://"):
        with pytest.raises(SubmitError, match="needs the URL"):
            submit(sweep, address)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SubmitError, match=f"nothing answers at {url} .*refused.* tunnel"):
            submit(sweep, url)
        silent.listen()
        with pytest.raises(SubmitError, match=f"nothing answers at {url} .*timed out"):
            submit(sweep, url)


@pytest.mark.usefixtures("empty_package")
def test_an_address_of_something_else_is_one_clear_error(
    cluster: FakeCluster, sweep: Sweep
) -> None:
    with pytest.raises(SubmitError, match="is not a Ray cluster"):
        submit(sweep, f"{cluster.url}/mlflow")
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            connection.recv(1024)
            connection.sendall(b"\x00\x00\x12\x04 not HTTP \x00\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(SubmitError, match=r"nothing answers at \S+ \(BadStatusLine\)"):
            submit(sweep, f"http://127.0.0.1:{other.getsockname()[1]}")


@pytest.mark.usefixtures("empty_package")
def test_the_address_given_is_the_one_used(
    cluster: FakeCluster, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's client would rather follow these variables."""
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:9")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
    assert submit(sweep, cluster.url, store="/shared") == 0
    assert os.environ["RAY_ADDRESS"] == os.environ["RAY_API_SERVER_ADDRESS"] == "http://127.0.0.1:9"
