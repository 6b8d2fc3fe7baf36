"""The benchmark's check of verdicts passes where they are equal, and fails where they are not."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest
import torch

from benchmarks import passkey
from fope_lab.evaluation.scoring.exact_match import exact_match

GIVEN = Namespace(trials=8, rounds=2, form="english", batch_tokens=1100, clock="cpu")


def test_all_ways_give_the_same_verdicts_and_a_wrong_one_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = passkey.build("tiny", "rope", torch.device("cpu"))
    found = passkey.measure(model, 330, GIVEN)
    assert found["different"] == {"generate": [], "hugging face": [], "read": [], "plain": []}
    assert found["right"] == 2
    assert found["answers"] > 4
    assert (found["batch"], {len(times) for times in found["ratios"].values()}) == (3, {2})

    def broken(read: Any, questions: Any, **options: Any) -> Any:
        verdicts = exact_match(read, questions, **options)
        if len(verdicts) == GIVEN.trials:  # not the run before the times are taken
            verdicts[5] ^= read is model
        return verdicts

    monkeypatch.setattr(passkey, "exact_match", broken)
    found = passkey.measure(model, 330, GIVEN)
    assert found["different"] == {"generate": [], "hugging face": [], "read": [5], "plain": []}
