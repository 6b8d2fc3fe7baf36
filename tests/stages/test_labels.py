"""Short names of values, corpora and stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweep_files import BASE, changed, load, of

from fope_lab.stages.labels import label, stage_label


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("rope", "rope"),
        (64, "64"),
        (0.001, "0.001"),
        (True, "true"),
        (None, "none"),
        ({"type": "rope"}, "rope"),
        ({"type": "p-rope", "p": 0.25}, "p-rope(p=0.25)"),
        ({"num_layers": 2, "tied": False}, "(num_layers=2,tied=false)"),
        ({}, "()"),
        ([32, 64], "32+64"),
        (
            {"type": "rotary", "transforms": ["clip_floor", {"type": "yarn", "factor": 4}]},
            "rotary(transforms=clip_floor+yarn(factor=4))",
        ),
    ],
)
def test_labels_of_values(value: Any, expected: str) -> None:
    assert label(value) == expected


def test_names_of_stages() -> None:
    assert stage_label("p", {}, None) == "p"
    assert stage_label("p", {}, 3) == "p[seed=3]"
    assert stage_label("p", {"p.train.tokens": 5}, 0) == "p[train.tokens=5,seed=0]"
    both = {"p.embedding": "rope", "e.embedding": {"type": "yarn", "factor": 2}}
    assert stage_label("e", both, None) == "e[p.embedding=rope,e.embedding=yarn(factor=2)]"


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        ("c4", "c4"),
        ({"type": "c4", "limit": 7}, "allenai/c4/en"),
        ("python-docs", "python-docs"),
        ({"dataset": "someone/texts", "revision": "a" * 40}, "someone/texts"),
        ({"files": "*.yaml"}, "files(1)"),
    ],
)
def test_names_of_prepared_data(tmp_path: Path, corpus: Any, expected: str) -> None:
    content = changed(BASE, {"stages.perplexity.corpus": corpus})
    names = {stage.label for stage in of(load(tmp_path, content), "prepare-data")}
    assert f"prepare-data[{expected},byte,validation]" in names
