"""Addresses, folders and outputs that can't be used: one clear line, and the right exit code."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kept_sweep
import pytest

from fope_lab.cli import main
from fope_lab.orchestration.cluster_address import ClusterError, require_cluster

pytestmark = pytest.mark.faults

SWEEP = kept_sweep.PRETRAIN.replace("name: kept", "name: surroundings")


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "surroundings.yaml"
    path.write_text(SWEEP)
    return path


def run(sweep: Path, shell: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A shell command, in which $LAB is `fope-lab` and $SWEEP the file, in the sweep's folder."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell],
        capture_output=True, text=True, cwd=sweep.parent, check=False,
        env={
            **{k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"},
            "LAB": f"{sys.executable} -m fope_lab.cli", "SWEEP": str(sweep), **environment,
        },
    )  # fmt: skip


@contextmanager
def listener(answer: bytes | None) -> Iterator[str]:
    """The address of a server that is not Ray: it sends an answer and closes, or says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            if answer is None:
                connection.recv(1 << 16)
                connection.recv(1 << 16)  # until the other side gives up
            else:
                connection.recv(1 << 16)
                connection.sendall(answer)
            connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    "address",
    ["", "127.0.0.1", "foo bar", "http://127.0.0.1:8265", "host:0", "host:99999", "ray://host"],
)
def test_an_address_of_another_form(
    sweep: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", str(sweep), "--address", address])
    assert caught.value.code == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"found {address!r} as the address of a Ray cluster" in line
    assert "needs local, auto, HOST:PORT or ray://HOST:PORT" in line
    assert ("is for `fope-lab submit`" in line) == address.startswith("http")
    assert list(sweep.parent.iterdir()) == [sweep]


def test_the_environment_is_checked_too(sweep: Path) -> None:
    done = run(sweep, "$LAB run $SWEEP", RAY_ADDRESS="127.0.0.1")
    assert done.returncode == 2
    assert "found '127.0.0.1' as the address of a Ray cluster" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_what_listens_is_not_ray(answer: bytes) -> None:
    with listener(answer) as address, pytest.raises(ClusterError) as caught:
        require_cluster(address)
    assert f"at {address} (--address or RAY_ADDRESS) is not Ray" in str(caught.value)


def test_what_listens_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fope_lab.orchestration.cluster_address._SECONDS", 0.3)
    started = time.monotonic()
    with listener(None) as address, pytest.raises(ClusterError, match=r"nothing answers at"):
        require_cluster(address)
    assert time.monotonic() - started < 5


def test_an_empty_variable_is_no_address_and_no_folder(sweep: Path) -> None:
    done = run(sweep, "$LAB plan $SWEEP", RAY_ADDRESS="", FOPE_LAB_STORE="")
    assert done.returncode == 0, done.stderr


def test_an_empty_path_is_no_store(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["plan", str(sweep), "--store", ""])
    assert caught.value.code == 2
    assert "--store: found '', needs the path of a folder" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["TMPDIR", "RAY_TMPDIR"])
def test_a_temporary_folder_that_is_not_there(sweep: Path, name: str) -> None:
    done = run(sweep, "$LAB run $SWEEP", **{name: str(sweep.parent / "gone")})
    assert done.returncode == 2, done.stdout + done.stderr
    [line] = done.stderr.strip().splitlines()
    assert line.startswith(f"error: {name} is {sweep.parent / 'gone'}, which is not a folder")


@pytest.mark.parametrize(
    ("limit", "name"),
    [
        ("-v 8000000", "on virtual memory (ulimit -v)"),
        ("-f 20", "on the size of a file (ulimit -f)"),
    ],
)
def test_a_limit_under_which_ray_does_not_start(sweep: Path, limit: str, name: str) -> None:
    done = run(sweep, f"ulimit {limit}; $LAB run $SWEEP")
    assert done.returncode == 2, done.stdout + done.stderr
    [line] = done.stderr.strip().splitlines()
    assert line.startswith(f"error: the limit {name} is ")


@pytest.mark.parametrize("shell", ["$LAB plan $SWEEP >&-", "$LAB plan $SWEEP >&- 2>&-"])
def test_closed_outputs(sweep: Path, shell: str) -> None:
    done = run(sweep, shell)
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""


def test_an_output_that_lacks_a_sign(sweep: Path) -> None:
    done = run(sweep, "PYTHONIOENCODING=ascii $LAB embeddings rope")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u" in done.stdout


def test_a_reader_that_has_enough(sweep: Path) -> None:
    done = run(sweep, "$LAB plan $SWEEP --json | true")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_full_disk_under_the_output(sweep: Path) -> None:
    done = run(sweep, "$LAB plan $SWEEP > /dev/full")
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert line.startswith("error: no space left on the disk; make room")
