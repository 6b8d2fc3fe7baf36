"""The headings of the results page name what was measured, and by which stage where that tells."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from docs.generate.results import Result, all_results

NAMES_A_STAGE = re.compile(r"(.+) \((.+)\)")


@pytest.fixture(scope="module")
def quickstart() -> Result:
    return next(result for result in all_results() if "quickstart" in result.sweep)


def test_a_heading_has_no_stage_that_is_called_as_its_metric() -> None:
    titles = [group.title for result in all_results() for group in result.groups]
    assert "Perplexity" in titles
    named = [found.groups() for title in titles if (found := NAMES_A_STAGE.fullmatch(title))]
    assert ("Perplexity", "extended-perplexity") in named
    for metric, stage in named:
        assert not set(stage.split("_")) <= set(metric.lower().split()), (metric, stage)


def test_stages_of_one_metric_are_told_apart(quickstart: Result) -> None:
    titles = [group.title for group in quickstart.groups]
    assert titles == [
        "Perplexity",
        "Passkey accuracy",
        "Perplexity (extended-perplexity)",
        "Passkey accuracy (extended-passkey)",
    ]


def test_two_stages_that_are_both_called_as_their_metric_keep_their_names(
    quickstart: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the words of passkey_accuracy may be the name of a stage."""
    renamed = {"passkey": "passkey", "extended-passkey": "accuracy"}
    cells = [
        {**cell, "stage": renamed[cell["stage"]]}
        for cell in quickstart.report["cells"]
        if cell["stage"] in renamed
    ]
    [metric] = {g.metric for g in quickstart.groups if g.stage == "passkey"}
    found = replace(quickstart, report={**quickstart.report, "cells": cells, "stages": []})
    monkeypatch.setattr("docs.generate.results.load_shipped", lambda _: _Sweep(metric))
    assert [g.title for g in found.groups] == [
        "Passkey accuracy (passkey)",
        "Passkey accuracy (accuracy)",
    ]


class _Stage:
    def __init__(self, section: str, metric: object) -> None:
        self.section, self.spec, self._metric = section, self, metric

    def metrics(self) -> list[object]:
        return [self._metric]


class _Sweep:
    def __init__(self, metric: object) -> None:
        self.stages = [_Stage(name, metric) for name in ("passkey", "accuracy")]
