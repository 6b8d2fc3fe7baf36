"""A Ray of our own: a private folder that goes with the run, and no secret in any file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import kept_sweep
import pytest

from fope_lab.orchestration.cluster_address import (
    LOCAL,
    MOST_BYTES,
    RAY_FOLDER,
    ClusterError,
    private_folder,
)
from fope_lab.orchestration.drivers import RAY, ray_folder, scratch_folder
from fope_lab.store.root import Store

NAMES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "HF_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "A_SERVICES_KEY",
)


def ray_folders(store: Path) -> Iterator[Path]:
    """Where the drivers of a store say that their Ray is."""
    for note in store.glob(f".tune/*/{RAY}"):
        yield Path(note.read_text())


def holders(secrets: Iterable[str], places: Iterable[Path]) -> set[str]:
    """The files that have a secret."""
    words = [secret.encode() for secret in secrets]
    found = set()
    for folder, _, names in (each for place in places for each in os.walk(place)):
        for path in (Path(folder, name) for name in names):
            try:
                content = path.read_bytes() if path.is_file() else b""
            except OSError:  # it is just going
                continue
            if any(word in content for word in words):
                found.add(path.name)
    return found


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_no_file_of_a_run_has_a_secret_and_no_folder_stays(tmp_path: Path) -> None:
    """Not even Ray's logs, which stay where a stage has failed, until the next run."""
    secrets = {name: f"secret-{uuid.uuid4().hex}" for name in NAMES}
    long = tmp_path / ("long-" * 16)
    long.mkdir()
    sweep, store = tmp_path / "kept.yaml", tmp_path / "store"
    seen: list[set[Path]] = []
    for rate in ("1e30", "0.01"):  # the first loss after a step of 1e30 is not finite
        text = kept_sweep.PRETRAIN.replace("learning_rate: 1e-2", f"learning_rate: {rate}")
        assert rate in text
        sweep.write_text(text)
        command = [sys.executable, "-P", "-m", "fope_lab.cli", "run", sweep, "--store", store]
        with subprocess.Popen(
            command,
            env={**os.environ, **secrets, "TMPDIR": str(long)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            seen.append(set())
            while process.poll() is None:
                seen[-1] |= {folder for folder in ray_folders(store) if folder.is_dir()}
                assert not holders(secrets.values(), [tmp_path, *seen[-1]])
                time.sleep(0.2)
            assert process.stdout is not None
            told = process.stdout.read()
        assert process.returncode == (rate == "1e30"), told
        if rate == "1e30":
            [kept] = seen[0]
            assert stat.S_IMODE(kept.stat().st_mode) == 0o700
            assert f"Ray's logs are in {kept} until the next run" in told
            assert list(kept.glob("r/session_*/logs/raylet.out"))
            assert not holders(secrets.values(), [tmp_path, kept])
    assert not any(folder.exists() for folders in seen for folder in folders)
    assert len(seen[0] | seen[1]) == 2
    assert not list(ray_folders(store))
    assert not [path for path in long.iterdir() if "torchinductor" not in path.name]
    assert not holders(secrets.values(), [tmp_path])


def test_the_folder_is_private_and_short_enough_for_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * MOST_BYTES)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    folder = private_folder()
    try:
        assert folder.parent == Path("/tmp")
        assert folder.name.startswith(RAY_FOLDER)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        folder.rmdir()
    monkeypatch.setenv("RAY_TMPDIR", "/var/tmp")
    folder = private_folder()
    folder.rmdir()
    assert folder.parent == Path("/var/tmp")


def test_no_place_for_the_folder_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise PermissionError

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(ClusterError, match=r"need a folder that can be written: tried .*/tmp"):
        private_folder()


@pytest.mark.parametrize("ends", [None, KeyboardInterrupt, RuntimeError])
def test_the_folder_stays_only_if_something_failed(
    tmp_path: Path, ends: type[BaseException] | None
) -> None:
    store, said = Store.create(tmp_path / "store"), list[str]()
    try:
        with (
            scratch_folder(store, "me") as scratch,
            ray_folder(scratch, LOCAL, said.append) as own,
        ):
            assert own.path is not None
            (own.path / "log").write_text("a")
            if ends is not None:
                raise ends
            own.has_failed = False
    except (KeyboardInterrupt, RuntimeError):
        pass
    stays = ends is RuntimeError
    assert own.path.is_dir() is stays
    assert said == ([f"Ray's logs are in {own.path} until the next run"] if stays else [])
    assert list(ray_folders(store.root)) == ([own.path] if stays else [])
    if stays:
        (own.path / "log").unlink()
        own.path.rmdir()
