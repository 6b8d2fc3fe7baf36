"""The run `summary` has the last report: its numbers, its files and its figures."""

from __future__ import annotations

from tracking_scene import Scene


def test_the_summary_is_updated_not_repeated(scene: Scene) -> None:
    plan = scene.plan()

    def report(text: str, value: float) -> None:
        scene.report(
            plan, {"report.html": text.encode(), "report.json": b"{}"}, {("holds",): value}
        )

    report("one", 1.0)
    report("one", 1.0)
    report("two", 2.0)
    scene.restart()
    report("two", 2.0)
    (run,) = scene.runs()
    assert run.data.tags["kind"] == "summary"
    assert [(step, value) for _, step, _, value in scene.points(run)] == [(1, "1.0"), (2, "2.0")]
    artifacts = scene.store.root / "mlartifacts" / "first" / run.info.run_id / "artifacts"
    assert run.info.artifact_uri == artifacts.as_uri()
    assert (artifacts / "report.html").read_text() == "two"


def test_a_report_is_kept_before_it_is_sent(scene: Scene) -> None:
    plan = scene.plan()
    scene.tracker.project(plan)
    scene.tracker.log_report(plan, {"report.html": b"kept"}, {("holds",): 3.0})
    assert scene.runs() == []  # MLflow was down, say
    assert scene.restart().sync() == ["first"]
    [run] = scene.runs()
    assert (run.data.tags["kind"], run.data.metrics) == ("summary", {"holds": 3.0})


def files_of(scene: Scene) -> dict[str, bytes]:
    """The files that MLflow has of the report, by their paths."""
    [run] = scene.runs()
    artifacts = scene.store.root / "mlartifacts" / "first" / run.info.run_id / "artifacts"
    files = [path for path in artifacts.rglob("*") if path.is_file()]
    return {path.relative_to(artifacts).as_posix(): path.read_bytes() for path in files}


def test_figures_are_sent_when_they_are_new_and_go_when_they_are_gone(scene: Scene) -> None:
    plan = scene.plan()
    old = {"report.md": b"one", "figures/loss.svg": b"<svg/>", "figures/passkey.svg": b"<svg/>"}
    scene.tracker.log_report(plan, old, {})
    scene.restart().project(plan)
    assert files_of(scene) == old
    new = {"report.md": b"one", "figures/loss.svg": b"<svg><!-- 2 --></svg>"}
    scene.tracker.log_report(plan, new, {})
    scene.restart().project(plan)
    assert files_of(scene) == new
    [kept] = scene.store.root.glob("tracking/sweeps/*/figures/*")
    assert kept.name == "loss.svg"


def test_a_report_of_which_a_file_is_lost_is_not_whole(scene: Scene) -> None:
    plan, files = scene.plan(), {"figures/loss.svg": b"<svg/>"}
    scene.tracker.log_report(plan, files, {})
    assert scene.tracker.has_report("first")
    [path] = scene.store.root.glob("tracking/sweeps/*/figures/loss.svg")
    path.unlink()
    assert not scene.tracker.has_report("first")
    scene.tracker.log_report(plan, files, {})
    assert scene.tracker.has_report("first")
