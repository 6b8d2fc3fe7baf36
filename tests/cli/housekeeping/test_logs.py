"""`fope-lab logs` prints the log of a stage's latest attempt, and says how the stage stands."""

from __future__ import annotations

import re

import pytest
from kept_sweep import ROPE, Scene

from fope_lab.cli import main
from fope_lab.cli.housekeeping.stage_log import StageLog

MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"


def test_the_log_is_that_of_the_latest_attempt(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.fail(ROPE, "the first error\nwith a second line")
    scene.fail(ROPE, "another error")
    key = scene.stage(ROPE).key[:8]
    for name in (ROPE, key):
        assert main(["logs", name, *scene.options]) == 0
        first, *log = capsys.readouterr().out.splitlines()
        assert re.fullmatch(
            rf"{re.escape(ROPE)} \({key}\): failed since {MOMENT}; attempt 2", first
        )
        assert re.fullmatch(rf"{MOMENT} \[2\] started by driver from step 0", log[0])
        assert log[-1] == "RuntimeError: another error"
        assert "first error" not in "".join(log)
    assert main(["logs", ROPE, "--all", *scene.options]) == 0
    every = capsys.readouterr().out
    assert "RuntimeError: the first error\nwith a second line\n" in every
    assert every.endswith("RuntimeError: another error\n")


def test_what_a_log_says_is_not_obeyed_by_the_terminal(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.fail(ROPE, "an error\x1b[2J\x1b]0;title\x07")
    for command in (["logs", ROPE], ["logs", ROPE, "--follow"], ["store", "list"]):
        assert main([*command, *scene.options]) == 0
        told = capsys.readouterr().out
        assert "\x1b" not in told
        assert "\x07" not in told
        assert r"an error\x1b[2J\x1b]0;title" in told or command[0] == "store"
    assert main(["status", str(scene.file), *scene.options]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_a_log_of_output_that_was_moved_away_is_that_of_the_attempt_before(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.save(ROPE, finish=True).set_aside("driver", "damaged: model")
    assert main(["logs", ROPE, *scene.options]) == 0
    first, *log = capsys.readouterr().out.splitlines()
    assert "(to be re-run: damaged: model); attempt 1" in first
    assert "[1] started by driver" in log[0]


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("passkey[embedding=nope,seed=0]", r"passkey.* \(\w{8}\) has no log: not started"),
        ("pretrian", r"STAGE: unknown stage or key 'pretrian'; did you mean 'pretrain'\?"),
        ("pretrain", r"STAGE: 'pretrain' means 2 stages: .*, needs one label or key"),
        ("0" * 32, r"STAGE: unknown stage or key '0+' \(allowed: pretrain, passkey\)"),
    ],
)
def test_what_has_no_log(
    scene: Scene, stage: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs", stage, *scene.options]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    [line] = output.err.splitlines()
    assert re.fullmatch(f"error: {message}.*", line)


def test_a_log_is_followed_until_the_attempt_ends(scene: Scene) -> None:
    folder = scene.folder(ROPE)
    with folder.begin("driver", {}) as attempt:
        log = StageLog(folder, "pretrain")
        assert re.fullmatch(f"pretrain: running since {MOMENT}; attempt 1", log.summary())
        texts = log.follow()
        assert "started by driver" in next(texts)
        attempt.writer.note("half way")
        with folder.paths.log.open("a") as file:
            file.write("a line that is being wri")
        text = next(texts)
        assert text.endswith("[1] half way\n")
        with folder.paths.log.open("a") as file:
            file.write("tten\n")
        attempt.finish({})
    assert list(texts) == ["a line that is being written\n"]
    assert ": done since " in log.summary()
