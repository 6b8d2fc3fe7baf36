"""Every analysis declares the numbers that it gives, before it runs."""

from __future__ import annotations

from typing import Any

import pytest

from fope_lab.analysis import analysis_names, parse_analysis

SMALL: dict[str, dict[str, Any]] = {
    "base-bound": {"lengths": [64, 256], "step": 0.1, "most": 1e5},
    "constructions": {},
    "decay": {"length": 64, "pairs": 20, "head_dim": 16},
    "feature-gap": {"embeddings": ["rope", "yarn"], "length": 96, "head_dim": 16},
    "gaussian-contribution": {"length": 128, "pairs": 20},
    "harmonics": {"length": 512},
    "low-pass": {"length": 128},
    "random-decay": {"length": 256, "reach": 4, "draws": 2, "pairs": 2, "head_dim": 16},
    "rotation-angles": {"length": 100, "pair": 3},
    "spectrum-damage": {"draws": 5},
    "truncated-wave": {"length": 64, "head_dim": 16},
}


@pytest.mark.parametrize("name", analysis_names())
def test_an_analysis_has_names_that_a_claim_can_use(name: str) -> None:
    names = parse_analysis(name).number_names
    assert names
    assert len(set(names)) == len(names)
    assert all(part.replace("_", "a").isalnum() and part[0].isalpha() for part in names)
    assert not [part for part in names if "_by_" in part]  # which would be curves


def test_all_analyses_of_no_model_are_here() -> None:
    assert set(SMALL) == {n for n in analysis_names() if parse_analysis(n).needs == "nothing"}


@pytest.mark.parametrize("name", SMALL)
def test_an_analysis_of_no_model_gives_all_that_it_declares(name: str) -> None:
    analysis = parse_analysis({"type": name, **SMALL[name]})
    numbers = analysis.numbers(analysis.compute(None, lambda done, total: None))
    assert set(numbers) == set(analysis.number_names)
