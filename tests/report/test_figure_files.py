"""The figures of a report as files: SVG that stands alone, and PDF in the colours of paper."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

import pytest
from matplotlib.colors import to_rgb
from report_samples import finish, report_of, write_plan

from fope_lab.cli import main
from fope_lab.drawing.svg import COLOURS, GRID, INK, MUTED, PAPER
from fope_lab.report import Report
from fope_lab.report.files import FigureError, write_figures
from fope_lab.report.render.figures import draw_figures
from fope_lab.store import Store


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    grid = {"pretrain.embedding": ["rope", "nope"], "pretrain.model.num_layers": [1, 2]}
    changes = {"seeds": [0, 1], "grid": grid}
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
