"""What the store records about MLflow may be lost or damaged; then it is recorded again."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tracking_scene import Scene, expected, finish

from fope_lab.cli import main
from fope_lab.tracking.errors import TrackingError

pytestmark = pytest.mark.faults

Damage = Callable[[bytes], bytes]
DAMAGES: tuple[Damage, ...] = (
    lambda data: b"",
    lambda data: b"{}",
    lambda data: b"[]",
    lambda data: data[: len(data) // 2],
    lambda data: bytes(len(data)),
    lambda data: b'{"name": "first", "stages": [[]], "content": 1, "run_id": null}',
)
REPORT = {"report.html": b"<p>a report</p>", "report.json": b"{}"}, {("holds",): 3.0}
NOTES = (
    "tracking/id",
    "tracking/*.lock",
    "tracking/sweeps/first/plan.json",
    "tracking/sweeps/first/report.meta.json",
    "tracking/sweeps/first/report.html",
    "pretrain/*/tracking/*.json",
)


def recorded(content: bytes) -> str:
    """A note without what can't be known again: what was cached at first, and when it was saved."""
    return re.sub(r'"(cached|time)": \w+', "", content.decode())


@pytest.mark.parametrize("note", NOTES)
def test_a_damaged_note_is_recorded_again(
    scene: Scene, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = scene.finish(scene.plan("first", "rope"))
    scene.report(plan, *REPORT)
    runs = {run.info.run_id for run in scene.runs()}
    files = sorted(scene.store.root.glob(note))
    assert files
    whole = {path: path.read_bytes() for path in files}
    for damage in DAMAGES:
        for path, content in whole.items():
            path.write_bytes(damage(content))
        code = main(["sync", "--store", str(scene.store.root)])
        output = capsys.readouterr()
        assert len((output.out + output.err).splitlines()) <= 2
        if note.endswith("plan.json"):
            assert (code, output.out) == (2, "")
            assert f"error: the record {files[0]} is damaged" in output.err
        else:
            assert code == 0
        scene.restart()
        scene.report(scene.plan("first", "rope"), *REPORT)
        assert {run.info.run_id for run in scene.runs()} == runs  # none is doubled or replaced
        if not note.endswith(".lock"):
            for path, content in whole.items():
                assert recorded(path.read_bytes()) == recorded(content)
    for stage in plan.sweep.stages:
        assert scene.points(scene.run(stage)) == expected(scene.folder(stage).rows())


def test_a_damaged_record_holds_up_no_other_sweep(scene: Scene) -> None:
    for name in ("first", "second"):
        scene.tracker.project(scene.plan(name))
    for stage in scene.plan().sweep.stages:
        finish(scene.folder(stage))
    path = scene.store.root / "tracking" / "sweeps" / "first" / "plan.json"
    path.unlink()
    (path.parent / "report.html").write_text("")
    with pytest.raises(TrackingError, match="is damaged: the next run of its sweep writes it"):
        scene.restart().sync()
    assert len(scene.runs("second")) == len(scene.plan("second").sweep.stages)
    scene.restart().project(scene.plan())
    assert scene.restart().sync() == ["first", "second"]


def test_sync_says_what_has_no_report(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sync", "--store", str(scene.store.root)]
    for name in ("first", "second"):
        scene.tracker.project(scene.plan(name))
    scene.report(scene.plan("second"), *REPORT)
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [
        "up to date: first, second",
        "without a report, which `fope-lab run` makes at its end: first",
    ]
