"""Submits a sweep as a Ray job: sends code and files to a cluster, where `fope-lab run` runs it.

The job's id holds the sweep's name and a hash of its stages' keys, so that the same sweep can't be
submitted while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus, JobSubmissionClient

from fope_lab.config.environment import FAILED, OK, WRONG_INPUT
from fope_lab.config.problems import counted
from fope_lab.orchestration.job_package import COMMAND, SubmitError, build_package
from fope_lab.stages.key import digest
from fope_lab.sweep.graph import Sweep

ANSWER_SECONDS = 10.0
"""How long to wait for the cluster's first answer."""
SETTLE_SECONDS = 60.0
"""How long to wait until a job whose log has ended is recorded as ended."""
POLL_SECONDS = 0.5
EXAMPLE = "http://127.0.0.1:8265"


class Token(NamedTuple):
    """The secret for a cluster with token authentication, and where it was found."""

    value: str
    source: str


def submit(
    sweep: Sweep,
    address: str,
    *,
    store: str | None = None,
    tracking_uri: str | None = None,
    wait: bool = True,
) -> int:
    """Run a sweep on the cluster whose dashboard is at `address`; returns the run's exit code.

    `store` and `tracking_uri` are valid on the cluster; by default its environment decides. Without
    `wait`, returns 0 as soon as the job is accepted. Raises SubmitError if it is not accepted.
    """
    if store is not None and not os.path.isabs(store):
        needs = "needs an absolute path that all nodes of the cluster can read"
        raise SubmitError(f"--store {store}: {needs}")
    cluster = Cluster(address)
    job = cluster.free_job_id(f"{sweep.name}-{digest(sorted(s.key for s in sweep.stages))[:8]}")
    with tempfile.TemporaryDirectory(prefix="fope-lab-") as folder:
        package = build_package(sweep, Path(folder))
        size = package.stat().st_size / 2**20
        print(f"{sweep.name}: {counted(len(sweep.stages))}, sending {size:.1f} MiB")
        variables = {"FOPE_LAB_STORE": store, "MLFLOW_TRACKING_URI": tracking_uri}
        environment = {name: value for name, value in variables.items() if value}
        cluster.start(job, package, environment)
    print(f"job {job}\n{cluster.advice(job)}")
    return cluster.follow(job) if wait else OK


class Cluster:
    """The Jobs interface of a Ray cluster. Raises SubmitError if no cluster answers."""

    def __init__(self, address: str) -> None:
        self.url = address.rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            needs = f"needs the URL of the cluster's dashboard, such as {EXAMPLE}"
            raise SubmitError(f"--address {address}: {needs}")
        self._token = find_token()
        headers = {"Authorization": f"Bearer {self._token.value}"} if self._token else {}
        self._require_ray(headers)
        for name in ("job.sdk", "dashboard_sdk"):
            logging.getLogger(f"ray.dashboard.modules.{name}").setLevel(logging.WARNING)
        # Ray would prefer these two over the address that is given.
        with _unset("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"), self._errors():
            self._client = JobSubmissionClient(self.url, headers=headers)

    def free_job_id(self, name: str) -> str:
        """`name` with the number of the next attempt. Raises SubmitError if one is running."""
        with self._errors():
            jobs = {job.submission_id: job for job in self._client.list_jobs() if job.submission_id}
        attempts = [0]
        for job_id, job in jobs.items():
            stem, _, number = job_id.rpartition("-")
            if stem != name or not number.isdigit():
                continue
            if not job.status.is_terminal():
                raise SubmitError(
                    f"this sweep is already submitted: job {job_id}, {job.status.lower()}\n"
                    f"{self.advice(job_id)}"
                )
            attempts.append(int(number))
        return f"{name}-{max(attempts) + 1}"

    def start(self, job: str, package: Path, environment: Mapping[str, str]) -> None:
        """Send a package and start it. Ray does not show the environment to other users."""
        with self._errors():
            self._client.submit_job(
                entrypoint=COMMAND,
                submission_id=job,
                runtime_env={"working_dir": str(package), "env_vars": dict(environment)},
            )

    def follow(self, job: str) -> int:
        """Print a job's log until it ends; returns its exit code. Ctrl-C does not stop the job."""

        async def print_log() -> None:
            async for lines in self._client.tail_job_logs(job):
                print(lines, end="", flush=True)

        try:
            with self._errors(still := f"Job {job} is still running.\n{self.advice(job)}"):
                asyncio.run(print_log())
                return self._exit_code(job)
        except KeyboardInterrupt:
            print(f"\n{still}")
            raise

    def advice(self, job: str) -> str:
        """The commands to follow and to stop a running job."""
        mode = "RAY_AUTH_MODE=token " if self._token else ""
        return (
            f"  follow: {mode}ray job logs --address {self.url} --follow {job}\n"
            f"  stop:   {mode}ray job stop --address {self.url} {job}"
        )

    def _exit_code(self, job: str) -> int:
        until = time.monotonic() + SETTLE_SECONDS
        details = self._client.get_job_info(job)
        while not details.status.is_terminal():
            if time.monotonic() > until:
                raise ConnectionError("the log has ended, but the job is not recorded as ended")
            time.sleep(POLL_SECONDS)
            details = self._client.get_job_info(job)
        if details.status == JobStatus.SUCCEEDED:
            return OK
        if details.status == JobStatus.STOPPED:
            print(f"Job {job} was stopped. Submit the sweep again to continue from its store.")
        elif details.driver_exit_code in (FAILED, WRONG_INPUT):
            return int(details.driver_exit_code)
        else:
            print(f"Job {job} failed: {details.message}", file=sys.stderr)
        return FAILED

    def _require_ray(self, headers: dict[str, str]) -> None:
        """Raises SubmitError if no Ray answers in time; Ray's own client would wait forever."""
        hint = (
            f"Is this the dashboard's address, such as {EXAMPLE}, and is the tunnel to it open "
            "(ray dashboard cluster.yaml)?"
        )
        url = f"{self.url}/api/version"
        try:
            answer = requests.get(url, headers=headers, timeout=ANSWER_SECONDS)
        except requests.RequestException as error:
            nothing = f"nothing answers at {self.url} ({_reason(error)})"
            raise SubmitError(f"{nothing}. {hint}") from error
        if answer.status_code in (401, 403):
            raise SubmitError(self._refused())
        try:
            answer.raise_for_status()
            answer.json()["ray_version"]
        except (requests.RequestException, KeyError, TypeError) as error:
            raise SubmitError(f"the server at {self.url} is not a Ray cluster. {hint}") from error

    def _refused(self) -> str:
        if self._token:
            return f"the cluster at {self.url} refuses the token from {self._token.source}"
        disabled = " because RAY_AUTH_MODE=disabled" if _tokens_disabled() else ""
        return (
            f"the cluster at {self.url} needs a token, and none was sent{disabled}: put it into "
            "RAY_AUTH_TOKEN, into a file that RAY_AUTH_TOKEN_PATH names, or into ~/.ray/auth_token"
        )

    @contextlib.contextmanager
    def _errors(self, more: str = "") -> Iterator[None]:
        try:
            yield
        except AuthenticationError as error:
            raise SubmitError(self._refused()) from error
        except (RuntimeError, OSError, aiohttp.ClientError) as error:
            lines = f"{self.url}: {_reason(error)}", more
            raise SubmitError("\n".join(filter(None, lines))) from error


@contextlib.contextmanager
def _unset(*names: str) -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def find_token() -> Token | None:
    """The token, from the places where Ray looks for it, or None.

    Raises SubmitError if RAY_AUTH_TOKEN_PATH names a file without a token, as Ray stops there too.
    """
    if _tokens_disabled():
        return None
    if value := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return Token(value, "RAY_AUTH_TOKEN")
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        value = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        if named:
            raise SubmitError(f"RAY_AUTH_TOKEN_PATH={named}: {error.strerror}") from error
        return None
    if not value and named:
        raise SubmitError(f"RAY_AUTH_TOKEN_PATH={named}: the file is empty")
    return Token(value, str(path)) if value else None


def _tokens_disabled() -> bool:
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled"


def _reason(error: BaseException) -> str:
    """The message of an error's first cause; of a traceback that a server sent, the last line."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    lines = [line for line in str(error).replace("\\n", "\n").splitlines() if line.strip(" .")]
    text = lines[-1].strip() if lines else ""
    return text if text and text.isprintable() else type(error).__name__
