"""`fope-lab store list` has a line for each stage, the largest first, and the totals."""

from __future__ import annotations

import pytest
from kept_sweep import NOPE, ROPE, Scene

from fope_lab.cli import main
from fope_lab.housekeeping.contents import contents, size_of
from fope_lab.store import Status


def test_every_stage_has_a_line_and_the_largest_comes_first(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.save(NOPE, finish=True, weights=bytes(31_000))
    scene.fail(ROPE, "an error")
    with scene.store.folder("perplexity", "0" * 32).begin("driver", {}) as attempt:
        attempt.finish({})
    assert main(["store", "list", *scene.options]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["key", "kind", "stage", "state", "size", "age", "sweeps"]
    keys = [scene.stage(NOPE).key[:8], scene.stage(ROPE).key[:8], "00000000"]
    assert [line.split()[0] for line in lines[:3]] == keys
    first = lines[0].split()
    assert first[:4] == [keys[0], "pretrain", NOPE, "done"]
    assert 30 < int(first[4]) < 40
    assert (first[5], first[-1]) == ("KiB", "kept")
    assert lines[1].split()[:4] == [keys[1], "pretrain", ROPE, "failed"]
    assert lines[2].split()[:4] == ["00000000", "perplexity", "–", "done"]
    assert lines[3].startswith(f"{scene.store.root}: 3 stages, ")
    assert "(1 failed, 2 done); " in lines[3]


def test_the_sizes_are_those_of_the_files(scene: Scene) -> None:
    scene.save(ROPE, finish=True)
    found = contents(scene.store)
    [stage] = found.stages
    assert stage.state.status is Status.DONE
    assert stage.sweeps == ("kept",)
    on_disk = sum(path.stat().st_size for path in scene.store.root.rglob("*") if path.is_file())
    assert stage.size + found.other_bytes == on_disk == size_of(scene.store.root)
    assert stage.size > len("weights")
