"""The needle's grid: models of known ability in every cell, and the stage's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sections import read_section
from torch import Tensor, nn

from fope_lab.data.problems import DataError
from fope_lab.data.tasks.passkey import Trial, prompt_form
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation.context import run
from fope_lab.evaluation.retrieval import Needle, NeedleResult, depth_heatmap, needle_accuracy
from fope_lab.evaluation.scoring.exact_match import exact_match
from fope_lab.store import Store

BYTE = ByteTokenizer()


class Copier(nn.Module):
    """Knows what followed the last time it read the same `known` bytes, within `reach` tokens.

    What it does not know it guesses as one of two digits.
    """

    def __init__(self, known: int, reach: int = 10**9) -> None:
        super().__init__()
        self.known, self.reach = known, reach
        self.generator = torch.Generator().manual_seed(0)

    def hidden(self, ids: Tensor) -> Tensor:
        logits = torch.zeros(*ids.shape, 272)
        for row, tokens in enumerate(ids.tolist()):
            text = bytes(tokens)
            for place in range(len(text) - 10, len(text)):
                source = text.rfind(text[place - self.known + 1 : place + 1], 0, place)
                if source >= 0 and place - source - self.known + 1 < self.reach:
                    logits[row, place, text[source + self.known]] = 1
                else:
                    digit = int(torch.randint(2, (1,), generator=self.generator))
                    logits[row, place, ord("4") + digit] = 1
        return logits

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


@pytest.mark.parametrize(
    ("form", "real"), [("english", False), ("english", True), ("symbolic", False)]
)
def test_a_perfect_retriever_is_right_in_every_cell(form: str, real: bool) -> None:
    text = np.array(BYTE.encode("Call me Ishmael. " * 40)) if real else None
    model = Copier(len("pass key is") if form == "english" else len("#"))
    for length in (350, 512):
        result = needle_accuracy(
            model, BYTE, length, depths=3, trials=4, form=form, text=text, batch_tokens=1000
        )
        assert result.correct.shape == (3, 4)
        assert result.by_depth == [1.0] * 3
        assert result.accuracy == 1.0


def test_a_model_that_reaches_half_back_is_right_in_the_deeper_half() -> None:
    result = needle_accuracy(Copier(1, reach=100), BYTE, 206, depths=11, trials=3, form="symbolic")
    # Free tokens: 194; the answer is 6 + 194 · (1 − depth) tokens after the key.
    right = [6 + 194 - round(194 * depth) <= 100 for depth in np.linspace(0, 1, 11)]
    assert result.by_depth == [float(found) for found in right]
    drawn = depth_heatmap([result])
    assert drawn["y"] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert drawn["x"] == [206]
    assert drawn["values"] == [[float(found)] for found in right]


def test_a_guesser_is_right_by_chance() -> None:
    """Of five digits none; of one digit in ten, a tenth."""
    result = needle_accuracy(Copier(1, reach=0), BYTE, 20, depths=2, trials=300, form="symbolic")
    assert result.accuracy == 0
    trials = [prompt_form("symbolic", BYTE).trial(20, i, 0.5) for i in range(1000)]
    last = [Trial(t.input_ids, t.answer_ids[-1:], t.depth) for t in trials]
    right = int(exact_match(Copier(1, reach=0), last).sum())
    assert stats.binomtest(right, 1000, 0.1).pvalue > 0.001


def test_the_error_is_that_of_trials_not_of_prompts() -> None:
    right = np.array([[True, False, True, True], [True, False, False, True]])
    result = NeedleResult(64, right, depths=(0.0, 1.0))
    assert result.stderr == pytest.approx(stats.sem([1.0, 0.0, 0.5, 1.0]))
    assert NeedleResult(64, right[:, :1], depths=(0.0, 1.0)).stderr is None


def test_a_stage_logs_a_row_a_length_and_leaves_a_heat_map(
    parents: dict[str, Path], tmp_path: Path
) -> None:
    section: dict[str, Any] = {"kind": "needle", "from": "m", "lengths": [400, 350]}
    section |= {"corpus": "python-docs", "depths": 3, "trials": 2}
    stage = read_section(Needle, section)
    folder = Store(tmp_path).folder("needle", "key")
    with folder.begin("test", {}) as attempt:
        attempt.finish(run(stage, attempt.writer, parents))
    assert [(row.step, row.values) for row in folder.rows()] == [
        (350, {"needle_accuracy_by_length": 0.0, "needle_accuracy_by_length_stderr": 0.0}),
        (400, {"needle_accuracy_by_length": 0.0, "needle_accuracy_by_length_stderr": 0.0}),
    ]
    result = folder.result()
    assert result is not None
    assert result["recorded"]["haystack"] == "held-out text"
    [drawn] = result["heatmaps"]
    assert (drawn["x"], drawn["y"]) == ([350, 400], [0, 50, 100])
    assert drawn["values"] == [[0.0, 0.0]] * 3
    assert result["recorded"]["trials"] == {"350": 6, "400": 6}
    assert [(one["x"], one["stderr"], one["n"]) for one in result["metrics"]] == [
        (350, 0.0, 6),
        (400, 0.0, 6),
    ]
    progress = folder.progress()
    assert progress is not None
    assert progress["step"] == progress["total"] == 6 * 750


def test_a_text_that_is_too_short_stops_the_stage_before_any_work(
    parents: dict[str, Path], tmp_path: Path
) -> None:
    section = {"kind": "needle", "from": "m", "lengths": [350, 10**7], "corpus": "python-docs"}
    stage = read_section(Needle, section)
    with (
        pytest.raises(DataError, match="the held-out text has"),
        Store(tmp_path).folder("needle", "key").begin("test", {}) as attempt,
    ):
        run(stage, attempt.writer, parents)
