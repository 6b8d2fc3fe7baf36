"""RULER's tasks: models that solve, half solve, and guess them; and the stage's files."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from measured import measured
from scipy import stats
from sections import read_section
from torch import Tensor, nn

from fope_lab.data.tasks.ruler_tasks import KeyValueTask, RulerTask, VariableTrackingTask
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation.context import run
from fope_lab.evaluation.retrieval import Ruler, ruler_accuracy
from fope_lab.statistics.intervals import wilson_interval
from fope_lab.store import Store

BYTE = ByteTokenizer()


class Reader(nn.Module):
    """Says what `answer(prompt)` gives, of `size` characters, whatever comes after the prompt."""

    def __init__(self, answer: Any, size: int) -> None:
        super().__init__()
        self.answer, self.size = answer, size

    def hidden(self, ids: Tensor) -> Tensor:
        logits = torch.zeros(*ids.shape, 272)
        for row, tokens in enumerate(ids.tolist()):
            text = bytes(tokens).decode()
            prompt = text[: len(text) - self.size + 1]
            for place, byte in enumerate(self.answer(prompt).encode()):
                logits[row, len(prompt) - 1 + place, byte] = 1
        return logits

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


def look_up(prompt: str) -> str:
    return dict(re.findall(r"#([A-Z])(\d+)", prompt))[prompt[-1]]


def follow(prompt: str) -> str:
    *lines, _ = re.findall(r"#(\w)([A-Z]?)", prompt)
    after = dict(lines)
    found, at = "", prompt[-1]
    while at in after:
        at = after[at]
        found += at
    return found


def any_value(chance: random.Random) -> Any:
    return lambda prompt: chance.choice(re.findall(r"#[A-Z](\d+)", prompt))


def any_variables(chance: random.Random, count: int) -> Any:
    def guess(prompt: str) -> str:
        names = re.findall(r"#\w([A-Z])", prompt)
        return "".join(names[i] for i in sorted(chance.sample(range(len(names)), count)))

    return guess


KEY_VALUE = KeyValueTask(digits=2, keys=5)
TRACKING = VariableTrackingTask(chains=2, hops=1)


@pytest.mark.parametrize("length", [64, 200])
def test_a_perfect_model_is_always_right(length: int) -> None:
    for task, answer, size in ((KEY_VALUE, look_up, 2), (TRACKING, follow, 2)):
        model = Reader(answer, size)
        result = ruler_accuracy(model, BYTE, task, length, trials=30, batch_tokens=500)
        assert result.correct.shape == (30,)
        assert result.accuracy == 1.0


def test_a_guesser_scores_what_chance_gives() -> None:
    chance = random.Random(0)
    cases: list[tuple[RulerTask, Any, float]] = [
        (KEY_VALUE, any_value(chance), 1 / 5),
        (TRACKING, any_variables(chance, 2), 1 / 6),
    ]
    for task, answer, expected in cases:
        result = ruler_accuracy(Reader(answer, 2), BYTE, task, 48, trials=1500)
        assert result.chance == expected
        assert stats.binomtest(int(result.correct.sum()), 1500, expected).pvalue > 0.001


def test_one_wrong_variable_is_wrong() -> None:
    def first_twice(prompt: str) -> str:
        return 2 * follow(prompt)[:1]

    assert ruler_accuracy(Reader(first_twice, 2), BYTE, TRACKING, 48, trials=20).accuracy == 0


def test_a_stage_logs_a_metric_for_each_task(parents: dict[str, Path], tmp_path: Path) -> None:
    section = {"kind": "ruler", "from": "m", "lengths": [64, 48], "trials": 10, "digits": 2}
    stage = read_section(Ruler, {**section, "form": "symbolic", "chains": 2})
    folder = Store(tmp_path).folder("ruler", "key")
    with folder.begin("test", {}) as attempt:
        attempt.finish(run(stage, attempt.writer, parents))
    names = {"ruler_key_value_accuracy_by_length", "ruler_variable_tracking_accuracy_by_length"}
    assert {row.step: set(row.values) for row in folder.rows()} == {64: names, 48: names}
    result = folder.result()
    assert result is not None
    assert measured(result).keys() == {(name, x) for name in names for x in (64, 48)}
    for metric in result["metrics"]:
        right = round(10 * metric["value"])
        assert metric["ci95"] == list(wilson_interval(right, 10))
        assert metric["n"] == 10
        if "key_value" in metric["name"]:
            assert metric["chance"] == 1 / 4
    progress = folder.progress()
    assert progress is not None
    assert progress["step"] == progress["total"] == 20 * 112
