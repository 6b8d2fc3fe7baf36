"""`fope-lab store list` and `show`: all stages with their sizes, and all that is known of one."""

from __future__ import annotations

import json
import re

import pytest
from kept_sweep import NOPE, ROPE, Scene

from fope_lab.cli import main
from fope_lab.cli.housekeeping.contents import contents, moment, size_of, size_text, span
from fope_lab.store.state import Status

PASSKEY = "passkey[embedding=rope,seed=0]"


def sections(text: str) -> dict[str, list[str]]:
    """The lines below each line that is not indented."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in text.splitlines():
        if line.startswith("  "):
            found[title].append(line[2:])
        else:
            title = line
            found[title] = []
    return found


def test_a_stage_with_its_past_and_its_relatives(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.fail(ROPE, "the disk was full\nmore")
    folder = scene.folder(ROPE)
    maker = {"commit": "0123456789ab", "clean": False, "device": "a processor"}
    with folder.begin("driver", scene.request(ROPE), made_by=maker) as attempt:
        attempt.writer.save_checkpoint(1, lambda path: (path / "model").write_bytes(b"12345"))
        attempt.finish({})
    scene.save(PASSKEY, finish=True)
    assert main(["store", "show", scene.stage(ROPE).key[:8], *scene.options]) == 0
    page = sections(capsys.readouterr().out)
    key = scene.stage(ROPE).key
    assert [line.split()[0] for line in page[ROPE]] == [
        "key", "kind", "sweeps", "state", "time", "folder"
    ]  # fmt: skip
    assert f"key     {key}" in page[ROPE]
    assert f"sweeps  kept ({ROPE})" in page[ROPE]
    assert "time    0 s over 2 attempts" in page[ROPE]
    assert "data:" in page["configuration"]
    assert "embedding: {type: rotary}" in page["configuration"]
    first, second = page["attempts"]
    assert re.search(r"^1  .*Z  failed after 0 s: the disk was full; on .*; driver driver$", first)
    assert re.search(
        r"^2  .*  done after .*device a processor; commit 0123456789ab\+; driver", second
    )
    assert page["parents: none"] == []
    assert page["children"] == [f"{PASSKEY} ({scene.stage(PASSKEY).key[:8]})"]
    names = {line.split()[2] for line in page["files"][:-1]}
    assert {"checkpoint/0002-000000001/model", "stage.yaml", "DONE", "log.txt"} <= names
    assert page["files"][-1].endswith("in all")

    assert main(["store", "show", PASSKEY, *scene.options]) == 0
    page = sections(capsys.readouterr().out)
    assert page["parents"] == [f"from: {ROPE} ({key[:8]})"]
    assert page["children: none"] == []


def test_the_times_of_attempts_are_those_of_their_sum(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """An attempt that failed after 20 s, one that died after 30 s, and one that took 40 s."""
    folder = scene.fail(ROPE, "no luck")
    end = folder.path / "attempts" / "0001.end"
    end.write_text(json.dumps(json.loads(end.read_text()) | {"seconds": 20.0}))
    lost = folder.begin("driver", scene.request(ROPE))
    lost.heartbeat.stop()
    folder.attempts.write_beat(2, 16)
    with folder.begin("driver", scene.request(ROPE)) as attempt:
        attempt.finish({})
    for path in (folder.paths.done, end.with_name("0003.end")):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": 40.0}))
    assert main(["store", "show", ROPE, *scene.options]) == 0
    page = sections(capsys.readouterr().out)
    assert "time    90 s over 3 attempts" in page[ROPE]
    words = ["failed after 20 s", "has not ended, was at work for at least 30 s", "done after 40 s"]
    assert all(word in line for word, line in zip(words, page["attempts"], strict=True))


def test_a_stage_that_nobody_began(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "show", PASSKEY, *scene.options]) == 0
    page = sections(capsys.readouterr().out)
    assert "state   not started (not in the store)" in page[PASSKEY]
    assert page["parents"] == [f"from: {ROPE} ({scene.stage(ROPE).key[:8]})"]
    assert "attempts: none" in page
    assert "files: none" in page


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
    [stage], other_bytes = contents(scene.store)
    assert stage.state.status is Status.DONE
    assert stage.sweeps == ("kept",)
    on_disk = sum(path.stat().st_size for path in scene.store.root.rglob("*") if path.is_file())
    assert stage.size + other_bytes == on_disk == size_of(scene.store.root)
    assert stage.size > len("weights")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (-3, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"),
     (172_800, "2 d")],
)  # fmt: skip
def test_a_duration(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KiB"), (1536, "1.5 KiB"), (10_240, "10 KiB"),
     (20 * 2**20, "20 MiB"), (3 * 2**40, "3.0 TiB")],
)  # fmt: skip
def test_a_size(size: int, text: str) -> None:
    assert size_text(size) == text


def test_a_moment_is_in_utc() -> None:
    assert moment(0) == "1970-01-01 00:00:00Z"
