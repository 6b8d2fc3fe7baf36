"""A store that two drivers share, and one on a full disk."""

from __future__ import annotations

import re
import shlex
import subprocess
import time

import pytest
from conftest import SHORT, Run  # type: ignore[attr-defined]

pytestmark = pytest.mark.faults


def test_two_drivers_share_one_store_without_doing_anything_twice(run: Run) -> None:
    """One of them without a reader of its output, as with `fope-lab run FILE | head -1`. Run again,
    the finished sweep trains nothing."""
    run.write(SHORT)
    first = run.start()
    command = f"{shlex.join(run.command)} | head -1; exit ${{PIPESTATUS[0]}}"
    attempts = {}
    for _ in range(2):
        started = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command], check=False, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"faults: {len(run.stages)} stages: ")
        assert done.stderr == ""
        if not attempts:
            run.finish(first)
            attempts = run.attempts()
            assert set(attempts.values()) == {1}
    assert f"{len(run.stages)} cached" in done.stdout
    assert time.monotonic() - started < 60
    assert run.attempts() == attempts
    run.assert_complete()


def test_a_full_disk_from_the_start(run: Run) -> None:
    """A real file system without room, from which nothing but one line for each stage comes."""
    run.write(SHORT)
    run.store.root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(run.store.root)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    try:
        for larger in ("1m", "60m"):
            driver = run.start()
            output, _ = driver.communicate(timeout=120)
            assert driver.returncode == 1, output
            assert "Traceback" not in output
            assert re.search("failed +prepare-data.*No space left|no space left.*ake room", output)
            subprocess.run(["mount", "-o", f"remount,size={larger}", run.store.root], check=True)
        run.finish()
        run.assert_complete()
    finally:
        subprocess.run(["umount", "-l", str(run.store.root)], check=True)
