"""The commands that only look at a store leave it as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import kept_sweep
import pytest

from fope_lab.cli import main
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep

SWEEP = kept_sweep.PRETRAIN.replace("name: kept", "name: looked-at")
COMMANDS = (
    ["plan"],
    ["plan", "--json"],
    ["status"],
    ["report", "--json"],
    ["report", "--markdown"],
)


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below a folder, with its modification time and size."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in [folder, *folder.rglob("*")]
    }


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "looked-at.yaml"
    path.write_text(SWEEP)
    return path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_store_is_left_as_it_is(
    sweep: Path, tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.create(tmp_path / "store")
    [stage] = load_sweep(sweep).stages
    with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
        attempt.writer.log(4, {"loss": 2.5})
        attempt.writer.save_checkpoint(4, lambda folder: (folder / "x").touch())
    before = tree(store.root)
    name, *options = command
    assert main([name, str(sweep), *options, "--store", str(store.root)]) == 0
    assert tree(store.root) == before
    assert "pretrain" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["missing", "empty", "of something else"])
@pytest.mark.parametrize(
    "command",
    [
        ["status", "FILE"],
        ["status", "FILE", "--json"],
        ["status", "FILE", "--watch"],
        ["stop", "FILE"],
        ["run", "FILE", "--retry-failed"],
        ["report", "FILE"],
        ["report", "FILE", "--json"],
        ["sync"],
        ["ui"],
        ["logs", "pretrain"],
        ["store", "list"],
        ["store", "show", "pretrain"],
        ["store", "verify"],
        ["store", "prune"],
        ["store", "prune", "--yes"],
    ],
    ids=" ".join,
)
def test_a_store_that_is_not_there_is_said_and_not_made(
    command: list[str], kind: str, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    if kind != "missing":
        store.mkdir()
    if kind == "of something else":
        (store / "photos" / "2020").mkdir(parents=True)
    before = tree(tmp_path)
    words = [str(sweep) if word == "FILE" else word for word in command]
    assert main([*words, "--store", str(store)]) == 2
    output = capsys.readouterr()
    assert output.err == f"error: there is no store at {store}: nothing has run there\n"
    assert output.out == ""
    assert tree(tmp_path) == before


def read_only(store: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command that can't write to the store, even as root: for it, the folder is mounted
    read-only. Others have no right to write."""
    if os.geteuid() == 0:
        mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", mount, str(store), *command]
    else:
        for path in [store, *store.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_store_that_can_only_be_read(sweep: Path, tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store")
    [stage] = load_sweep(sweep).stages
    with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
        attempt.writer.log(4, {"loss": 2.5})
        attempt.writer.save_checkpoint(4, lambda f: (f / "weights").write_bytes(b"1") and None)
        attempt.finish({"recorded": {}})
    before = tree(store.root)
    program = (
        "import sys\nfrom fope_lab.cli import main\n"
        "codes = [main([*words, '--store', sys.argv[2]]) for words in\n"
        "         (['plan', sys.argv[1]], ['status', sys.argv[1]], ['report', sys.argv[1]],\n"
        "          ['report', sys.argv[1], '--json'])]\n"
        "sys.exit(codes != [0, 0, 0, 0])"
    )
    done = read_only(store.root, [sys.executable, "-c", program, str(sweep), str(store.root)])
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"this machine mounts nothing: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert "1 cached" in done.stdout
    assert "report: not written (" in done.stdout
    assert tree(store.root) == before
