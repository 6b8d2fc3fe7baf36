"""What a notebook shows of a plan and of a comparison, and that what it shows is escaped."""

from __future__ import annotations

import html
import re
from pathlib import Path

import kept_sweep
import nbformat
import pytest
from nbclient import NotebookClient

import fope_lab
from fope_lab.report.render.documents import render_html
from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.sweep import load_sweep, plan


@pytest.fixture
def scene(tmp_path: Path) -> kept_sweep.Scene:
    """A training that is done, one that is under way, and two stages to do."""
    scene = kept_sweep.Scene(tmp_path)
    for name, finish in ((kept_sweep.ROPE, True), (kept_sweep.NOPE, False)):
        stage = scene.stage(name)
        with scene.store.folder(stage.kind, stage.key).begin("driver", {}) as attempt:
            for step in (1, 2, 3):
                attempt.writer.log(step, {"loss": 3.0 / step})
            attempt.writer.save_checkpoint(3, lambda folder: (folder / "model").write_text("w"))
            if finish:
                loss = Measurement(name="loss", value=1.0)
                attempt.finish(ResultRecord(metrics=(loss,), recorded={}).as_json())
    return scene


def test_a_plan_is_a_table(scene: kept_sweep.Scene) -> None:
    shown = fope_lab.plan(scene.file, scene.store)._repr_html_()
    assert shown.startswith("<p><b>kept</b>: 4 stages: 1 cached, 1 resume, 2 run</p><table")
    rows = re.findall("<tr>(.*?)</tr>", shown, re.DOTALL)
    assert len(rows) == 4
    assert "<td>pretrain[embedding=rope,seed=0]</td>" in re.sub(r">\s+<", "><", shown)
    assert "from its checkpoint at step 3" in shown


def test_a_plan_is_escaped(tmp_path: Path) -> None:
    """Labels of stages hold what the file says."""
    text = kept_sweep.SWEEP.replace("name: kept", "name: kept\ndescription: <b>bold</b>")
    (tmp_path / "a.yaml").write_text(text.replace("  passkey:", "  other:"))
    planned = plan(load_sweep(tmp_path / "a.yaml"))
    key = planned.sweep.stages[0].key
    planned.states[key] = planned.states[key].__class__(
        planned.states[key].status, "<script>alert(1)</script>"
    )
    assert "<script>" not in planned._repr_html_()


def test_a_comparison_is_its_page_in_a_frame_with_curves_in_progress(
    scene: kept_sweep.Scene,
) -> None:
    compared = fope_lab.compare(scene.file, scene.store)
    shown = compared._repr_html_()
    [page] = re.findall(r'<iframe title="kept: comparison" srcdoc="(.*?)" style=', shown, re.DOTALL)
    assert '"' not in page
    assert "<" not in page
    whole = html.unescape(page)
    assert whole == render_html(compared.report)
    assert "pretrain[embedding=nope,seed=0] is interrupted: up to its last checkpoint" in whole
    assert len(re.findall("<svg", whole)) >= 1
    assert "Loss" in str(compared)
    assert "\x1b" not in str(compared)
    assert repr(compared).startswith("<Comparison kept: ")


def test_jupyter_shows_them(scene: kept_sweep.Scene, tmp_path: Path) -> None:
    """In a real kernel; `watch` ends at once where nothing runs."""
    cells = [
        "import fope_lab",
        f"fope_lab.plan({str(scene.file)!r}, {str(scene.store)!r})",
        f"fope_lab.results({str(scene.file)!r}, {str(scene.store)!r})",
        f"fope_lab.compare({str(scene.file)!r}, {str(scene.store)!r})",
        f"fope_lab.watch({str(scene.file)!r}, {str(scene.store)!r}, seconds=1)",
    ]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = [cell["outputs"] for cell in notebook.cells]
    assert outputs[0] == []
    pages = [output[0]["data"]["text/html"] for output in outputs[1:]]
    assert [page[:9] for page in (pages[0], pages[2], pages[3])] == [
        "<p><b>kep",
        *["<iframe t"] * 2,
    ]
    assert "loss" in pages[1]
