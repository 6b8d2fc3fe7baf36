"""The files of a report, made anew only if anything that they show has changed; and its figures as
files."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import io
import itertools
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from report_samples import BASE, finish, make_report, report_of, result, write_plan
from rich.console import Console

from fope_lab.cli import main
from fope_lab.drawing.svg import COLOURS, GRID, INK, MUTED, PAPER
from fope_lab.evaluation.context import run
from fope_lab.orchestration import run_sweeps
from fope_lab.orchestration.run_sweeps import report_of_sweep
from fope_lab.report import Report, RunLinks, build
from fope_lab.report.build import build_report
from fope_lab.report.files import (
    INPUTS,
    REPORT_FILES,
    FigureError,
    write_figures,
    write_report,
)
from fope_lab.report.render.figures import draw_figures
from fope_lab.stages.metric import ARRAYS
from fope_lab.store.root import Store
from fope_lab.sweep import Plan

SMALL: dict[str, Any] = {"seeds": [0, 1], "grid": {"pretrain.embedding": ["rope", "nope"]}}
PASSKEY = "passkey[embedding=rope,seed=0]"
YEARS = itertools.count(2040)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return write_plan(tmp_path, SMALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "reports" / "sample"


def write_again(report: Report, folder: Path) -> bool:
    """Write a report; returns whether it was made anew, which its date tells."""
    before = (folder / "report.json").read_bytes()
    later = dataclasses.replace(report, generated=report.generated.replace(year=next(YEARS)))
    unchanged = write_report(later, folder).unchanged
    assert ((folder / "report.json").read_bytes() == before) == unchanged
    return not unchanged


def test_nothing_is_written_where_nothing_has_changed(
    plan: Plan, store: Store, folder: Path
) -> None:
    finish(plan, store)
    first = write_report(make_report(plan, store), folder)
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert (first.unchanged, str(first)) == (False, str(folder / "report.html"))
    assert not write_again(make_report(plan, store), folder)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times
    again = write_report(make_report(plan, store), folder)
    assert str(again) == f"{folder / 'report.html'} (unchanged)"


def test_a_report_of_the_same_is_printed_again_without_its_numbers(
    plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def printed(*, colours: bool) -> str:
        console = Console(file=io.StringIO(), width=60, force_terminal=colours, no_color=False)
        with console.capture() as captured:
            report_of_sweep(plan.sweep, store, None).print(console)
        return captured.get()

    finish(plan, store, skip=[PASSKEY])
    first = [printed(colours=False), printed(colours=True)]
    assert not report_of_sweep(plan.sweep, store, None).save().unchanged
    monkeypatch.setattr(run_sweeps, "build_report", None)
    assert report_of_sweep(plan.sweep, store, None).save().unchanged
    assert [printed(colours=False), printed(colours=True)] == first
    assert f"Missing:\n  {PASSKEY}" in first[0]
    assert first[1].count("\x1b[1;32m") > 2, "the best numbers are green"


def another_value(plan: Plan, store: Store) -> None:
    [stage] = [s for s in plan.sweep.stages if s.label == PASSKEY]
    stage_folder = store.folder(stage.kind, stage.key)
    stage_folder.set_aside("test")
    with stage_folder.begin("test", {"config": stage.config}) as attempt:
        attempt.writer.log(32, {"passkey_accuracy_by_length": 0.123456})
        attempt.finish(result(form="symbolic"))


def a_failed_attempt(plan: Plan, store: Store) -> None:
    [stage] = [s for s in plan.sweep.stages if s.label == "passkey[embedding=nope,seed=1]"]
    attempt = store.folder(stage.kind, stage.key).begin("test", {})
    with pytest.raises(OSError, match="space"), attempt:
        raise OSError("no space left")


def a_damaged_result(plan: Plan, store: Store) -> None:
    [stage] = [s for s in plan.sweep.stages if s.label == PASSKEY]
    store.folder(stage.kind, stage.key).paths.result.write_text("{}")


@pytest.mark.parametrize("change", [another_value, a_failed_attempt, a_damaged_result])
def test_what_the_store_has_changes_the_report(
    plan: Plan, store: Store, folder: Path, change: Callable[[Plan, Store], None]
) -> None:
    finish(plan, store, skip=["passkey[embedding=nope,seed=1]"])
    write_report(make_report(plan, store), folder)
    change(plan, store)
    assert write_again(make_report(plan, store), folder)
    assert not write_again(make_report(plan, store), folder)


def test_what_the_sweep_file_says_changes_the_report(
    plan: Plan, store: Store, tmp_path: Path
) -> None:
    finish(plan, store)
    changes: list[dict[str, Any]] = [
        {},
        {"description": "Others."},
        {"report": {"claims": ["perplexity@256: nope > rope"]}},
        {"report": {"tables": ["passkey"]}},
        {"seeds": [0]},
        {"paper": "fope/figure1"},
    ]
    plans = [write_plan(tmp_path, {**SMALL, **change}) for change in changes]
    assert len({make_report(plan, store).inputs for plan in plans}) == len(plans)


def test_what_surrounds_the_sweep_changes_the_report(
    plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(plan, store, skip=[PASSKEY])
    key = plan.sweep.stages[-1].key
    links = (
        RunLinks({key: "run"}),
        RunLinks({key: "run"}, {key: "http://a/#/runs/run"}),
        RunLinks({key: "run"}, {}, {"figure": "http://a/b"}),
    )
    found = [make_report(plan, store).inputs]
    found += [make_report(plan, store, one).inputs for one in links]
    found.append(build_report(plan.sweep, store, provenance={"commit": "abc1235"}).inputs)
    with monkeypatch.context() as patched:
        patched.setattr(importlib.metadata, "version", lambda name: f"{name} 99")
        build._code_digest.cache_clear()
        found.append(make_report(plan, store).inputs)
    build._code_digest.cache_clear()
    monkeypatch.setattr(build, "_code_digest", lambda: "other code")
    found.append(make_report(plan, store).inputs)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *itertools.product([*REPORT_FILES, INPUTS], [None, b""]),
        *itertools.product([INPUTS], [b"[]", b'{"inputs": 3, "files": [1]}']),
    ],
)
def test_a_damaged_or_missing_file_is_made_anew(
    plan: Plan, store: Store, folder: Path, name: str, damage: bytes | None
) -> None:
    report = make_report(plan, store)
    write_report(report, folder)
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    (folder / name).unlink()
    if damage is not None:
        (folder / name).write_bytes(damage)
    assert not write_report(report, folder).unchanged
    assert {path: path.read_bytes() for path in folder.iterdir()} == whole


@pytest.mark.parametrize("change", [{"text": "1.23"}, {"missing": [1]}, {"missing": ["a"]}])
def test_what_a_changed_record_says_is_not_printed(
    plan: Plan, store: Store, folder: Path, change: dict[str, Any]
) -> None:
    finish(plan, store)
    report = make_report(plan, store)
    made = write_report(report, folder)
    kept = json.loads((folder / INPUTS).read_text())
    (folder / INPUTS).write_text(json.dumps({**kept, **change}))
    again = write_report(report, folder)
    assert (again.text, again.missing, again.unchanged) == (made.text, made.missing, False)


def test_the_arrays_of_an_analysis_change_the_report(tmp_path: Path, store: Store) -> None:
    decay = {"type": "decay", "length": 32, "pairs": 3, "head_dim": 8}
    stages = {"decay": {"kind": "analysis", "analysis": decay}}
    plan = write_plan(tmp_path, {"stages": stages, "grid": {}, "seeds": [0]})
    [stage] = plan.sweep.stages
    stage_folder = store.folder(stage.kind, stage.key)
    with stage_folder.begin("test", {}) as attempt:
        attempt.finish(run(stage.spec, attempt.writer, {}))  # type: ignore[arg-type]
    before = make_report(plan, store).inputs
    assert make_report(plan, store).inputs == before
    checkpoint = stage_folder.checkpoint()
    assert checkpoint is not None
    path = checkpoint.path / ARRAYS
    size = path.stat().st_size
    with np.load(path) as arrays:
        changed = {name: arrays[name] for name in arrays.files}
    changed["constant"] = -changed["constant"]
    np.savez_compressed(path, **changed)
    path.write_bytes(path.read_bytes()[:size].ljust(size, b"\0"))  # the store looks at sizes alone
    assert make_report(plan, store).inputs != before


def test_another_process_has_the_same_inputs(plan: Plan, store: Store, tmp_path: Path) -> None:
    """No order of a set, and no address in memory, is in it."""
    finish(plan, store)
    code = (
        "from report_samples import *; from pathlib import Path;"
        f"plan = write_plan(Path({str(tmp_path)!r}), {SMALL!r});"
        f"print(make_report(plan, Store(Path({str(store.root)!r}))).inputs)"
    )
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == make_report(plan, store).inputs


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    grid = {"pretrain.embedding": ["rope", "nope"], "pretrain.model.num_layers": [1, 2]}
    stages = {name: BASE["stages"][name] for name in ("pretrain", "perplexity")}
    changes = {"seeds": [0, 1], "grid": grid, "stages": stages}
    return report_of(tmp_path_factory.mktemp("report"), changes=changes)


@pytest.fixture(scope="module")
def written(report: Report, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The report's files, in a folder that is made for them."""
    return write_figures(report, tmp_path_factory.mktemp("written") / "new" / "figures")


def drawn(pdf: bytes) -> str:
    """The drawing commands of a PDF file."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, flags=re.DOTALL)
    texts = []
    for stream in streams:
        try:
            texts.append(zlib.decompress(stream).decode("latin-1"))
        except zlib.error:  # a font
            continue
    return "\n".join(texts)


def colours_of(pdf: bytes) -> set[tuple[float, ...]]:
    """The colours that a PDF file draws with, in steps of 1/255."""
    found = re.findall(r"([\d.]+) ([\d.]+) ([\d.]+) (?:rg|RG)\b", drawn(pdf))
    grey = [(g, g, g) for g in re.findall(r"(?:^|\s)([\d.]+) [gG]\b", drawn(pdf))]
    return {tuple(round(float(part) * 255) for part in colour) for colour in [*found, *grey]}


def steps(colour: str) -> tuple[float, ...]:
    return tuple(round(part * 255) for part in to_rgb(colour))


def test_every_panel_is_a_file_of_each_kind(report: Report, written: list[Path]) -> None:
    panels = [panel for figure in draw_figures(report) for panel in figure.panels]
    assert len(panels) > len(draw_figures(report))  # some figures have several
    assert len(written) == len(set(written)) == 2 * len(panels)
    assert {path.suffix for path in written} == {".svg", ".pdf"}
    assert all(path.stat().st_size > 1000 for path in written)
    assert any(path.name == "perplexity-by-context-length-1.svg" for path in written)


def test_an_svg_says_what_it_shows_and_loads_nothing(written: list[Path]) -> None:
    for path in written:
        if path.suffix == ".svg":
            root = ET.parse(path).getroot()
            assert root.tag.endswith("svg")
            assert "http" not in path.read_text().replace("http://www.w3.org/2000/svg", "")


def test_a_pdf_has_the_colours_of_paper(written: list[Path]) -> None:
    curves = {steps(light) for light, _ in COLOURS}
    for path in written:
        if path.suffix == ".pdf":
            content = path.read_bytes()
            assert content.startswith(b"%PDF")
            found = colours_of(content)
            page = {steps(colour) for colour in (INK, MUTED, GRID, PAPER)}
            assert found <= page | curves | {(0, 0, 0)}  # black is set, and draws nothing
            assert found & curves


def test_equal_reports_have_equal_files(
    report: Report, written: list[Path], tmp_path: Path
) -> None:
    for one, other in zip(written, write_figures(report, tmp_path), strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_a_folder_that_can_not_be_written_is_told(report: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FigureError, match="file is a file, needs a folder"):
        write_figures(report, tmp_path / "file")
    with pytest.raises(FigureError, match="inside can't be written: Not a directory"):
        write_figures(report, tmp_path / "file" / "inside")


def test_the_command_prints_the_files(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(tmp_path, {"seeds": [0], "grid": {"pretrain.embedding": ["rope"]}})
    finish(plan, store)
    words = ["report", str(plan.sweep.path), "--store", str(store.root)]
    assert main([*words, "--figures", str(tmp_path / "out")]) == 0
    printed = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert set(printed) == set((tmp_path / "out").iterdir())
    assert main([*words, "--latex"]) == 0
    assert r"\toprule" in capsys.readouterr().out
    assert main([*words, "--figures", str(plan.sweep.path)]) == 2
    assert "is a file, needs a folder" in capsys.readouterr().err
