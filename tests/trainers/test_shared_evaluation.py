"""Evaluations by two gloo workers: to the bit what one worker measures."""

from __future__ import annotations

from pathlib import Path

import pytest
from evaluation_group import RealEvaluation, group
from processes import start

CASES = ("perplexity", "perplexity-drawn", "passkey", "passkey-drawn", "posgen-drawn")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from real_evaluations import prepare

    folder = tmp_path_factory.mktemp("evaluations")
    prepare(folder)
    start(group, 2, folder, CASES, count=2)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_two_workers_measure_what_one_does(folder: Path, case: str) -> None:
    alone, together = (RealEvaluation(folder, f"{case}-{size}", case) for size in (1, 2))
    alone.attempt()
    assert together.stage.is_done()
    assert together.outcome() == alone.outcome()
