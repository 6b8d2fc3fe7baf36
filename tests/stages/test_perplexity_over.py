"""`over` of a perplexity stage: in the key, prepared, counted, and no change without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweep_files import BASE, changed, load, of, told

from fope_lab.sweep.graph import Stage


def stage(folder: Path, **options: Any) -> Stage:
    folder.mkdir(exist_ok=True)
    changes = {f"stages.perplexity.{name}": value for name, value in options.items()}
    [found] = of(load(folder, changed(BASE, changes)), "perplexity")
    return found


def test_the_other_text_is_in_the_key_and_prepared(tmp_path: Path) -> None:
    alone, twice = stage(tmp_path), stage(tmp_path, over="python-docs")
    assert stage(tmp_path, over=None).key == alone.key
    assert len({alone.key, twice.key, stage(tmp_path, over="pg19").key}) == 3
    assert stage(tmp_path, corpus="python-docs", over="c4").key != twice.key
    assert set(alone.parents) == {"from", "data.0"}
    assert set(twice.parents) == {"from", "data.0", "data.1"}
    assert twice.parents["data.0"] == alone.parents["data.0"]
    assert twice.parents["data.1"] == stage(tmp_path, corpus="python-docs").parents["data.0"]


@pytest.mark.parametrize("more", [{}, {"method": "sliding", "stride": 16}])
def test_both_texts_are_read(tmp_path: Path, more: dict[str, Any]) -> None:
    alone = stage(tmp_path, tokens=1000, **more).cost
    both = stage(tmp_path, tokens=1000, over="python-docs", **more).cost
    assert alone.tokens
    assert alone.flops
    assert both.tokens == 2 * alone.tokens
    assert both.flops == pytest.approx(2 * alone.flops)
    assert both.memory == alone.memory  # one after the other


def test_an_axis_sets_its_options(tmp_path: Path) -> None:
    content = changed(BASE, {"stages.perplexity.over": "pg19"})
    content["grid"] = {"perplexity.over.limit": [10, 20]}
    found = of(load(tmp_path, content), "perplexity")
    assert [one.spec.over.limit for one in found] == [10, 20]
    assert len({one.key for one in found}) == 2


def test_a_text_over_itself_is_told(tmp_path: Path) -> None:
    content = changed(BASE, {"stages.perplexity.over": {"type": "c4"}})
    [message] = told(tmp_path, content)
    assert message.endswith("perplexity.over: is the corpus itself: every ratio would be 1")
    content = changed(BASE, {"stages.perplexity.over": "pyton-docs"})
    [message] = told(tmp_path, content)
    assert "perplexity.over: unknown corpus 'pyton-docs'" in message
    assert "did you mean 'python-docs'" in message
