"""benchmarks/contestants.py: a contestant trains only while somebody gives it turns."""

from __future__ import annotations

import io
import sys

import pytest

from benchmarks.contestants import Turns


def turns(monkeypatch: pytest.MonkeyPatch, given: str) -> tuple[Turns, io.StringIO]:
    """Two turns and a warm-up of a step, and what is printed about them."""
    report = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    monkeypatch.setattr(sys, "stdout", report)
    return Turns(steps=1, rounds=3, clock=iter(range(10)).__next__), report


def test_a_contestant_takes_the_turns_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    all_turns, report = turns(monkeypatch, "\n\n\n")
    for _ in range(all_turns.all_steps):
        all_turns.step()
    assert [line.split()[0] for line in report.getvalue().splitlines()] == ["1", "1", "1"]


def test_a_contestant_ends_with_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    one_turn, report = turns(monkeypatch, "\n")
    one_turn.step()
    with pytest.raises(SystemExit, match="no more turns"):
        one_turn.step()
    assert len(report.getvalue().splitlines()) == 1
