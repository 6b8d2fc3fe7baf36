"""Retrieval: passkey, needle and RULER's tasks, by models that know, and as stages."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from measured import measured, ran
from models import Halves, Logits, llama
from scipy import stats
from sections import read_section
from torch import Tensor

from fope_lab.data.problems import DataError
from fope_lab.data.tasks.passkey import Trial, prompt_form
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation.context import run
from fope_lab.evaluation.retrieval import Answered, Needle, Passkey, Retrieval, Ruler, by_depth
from fope_lab.evaluation.scoring.exact_match import exact_match
from fope_lab.statistics.intervals import wilson_interval
from fope_lab.store.root import Store

BYTE = ByteTokenizer()
NEEDLES = {"symbolic": b"#", "english": b"The pass key is"}
RULER = {"form": "symbolic", "digits": 2, "keys": 5, "chains": 2, "hops": 1}


def stage(kind: type[Retrieval], length: int, **options: Any) -> Any:
    return read_section(kind, {"from": "m", "lengths": [length], **options})


class Retriever(Logits):
    """Predicts what followed the same question the first time, if that is at most `reach` back."""

    def __init__(self, needle: bytes, reach: int = 10**9) -> None:
        super().__init__()
        self.needle, self.reach = needle, reach

    def hidden(self, ids: Tensor) -> Tensor:
        logits = torch.zeros(*ids.shape, 272)
        for row, tokens in enumerate(ids.tolist()):
            text = bytes(tokens)
            first, last = text.find(self.needle), text.rfind(self.needle)
            for place in range(last + len(self.needle) - 1, len(tokens)):
                source = first + place - last + 1
                if place - source < self.reach:
                    logits[row, place, tokens[source]] = 1
        return logits


@pytest.mark.parametrize(
    ("form", "length"),
    [
        *(("symbolic", length) for length in (12, 13, 50, 330, 512, 2048, 8192)),
        *(("english", length) for length in (330, 512, 2048, 8192)),
    ],
)
def test_a_perfect_retriever_is_always_right(form: str, length: int) -> None:
    model = Retriever(NEEDLES[form])
    for batch_tokens in (1, 5000):
        passkey = stage(Passkey, length, trials=12, form=form)
        result = passkey.score(model, BYTE, length, "passkey", batch_tokens=batch_tokens)
        assert result.accuracy == 1.0
        assert result.correct.shape == (12,)


def test_a_model_that_reaches_half_back_is_right_on_the_nearer_half() -> None:
    model = Retriever(b"#", reach=100)
    passkey = stage(Passkey, 200, trials=400, form="symbolic")
    result = passkey.score(model, BYTE, 200, "passkey")
    # The answer's first token lies 194 − (tokens before the key) after the key's.
    distances = (1 - np.array(result.depths)) * 188 + 6
    assert (result.correct == (distances <= 100)).all()
    tenths = by_depth(result)
    assert [tenth["depth"] for tenth in tenths] == pytest.approx(np.arange(0.05, 1, 0.1))
    assert sum(tenth["trials"] for tenth in tenths) == 400
    assert [tenth["accuracy"] for tenth in tenths] == [0.0] * 5 + [1.0] * 5


def test_greedy_generation_agrees_on_every_trial(make_bpe: Callable[[int], Any]) -> None:
    """Half of the answers are replaced by what the model says, so that both verdicts occur."""
    tokenizer = make_bpe(80)
    model = llama(len(tokenizer))
    prompts = prompt_form("english", tokenizer)
    said, trials = [], []
    for index in range(12):
        trial = prompts.trial(400, index)
        size = len(trial.answer_ids)
        prompt = torch.from_numpy(trial.input_ids[None, :-size])
        with torch.inference_mode():
            generated = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=False,
                max_new_tokens=size,
                min_new_tokens=size,
                pad_token_id=0,
            )[0, -size:].numpy()
        if index % 2:
            keep = size if index % 4 == 1 else size - 1  # one token wrong is wrong
            answer = np.where(np.arange(size) < keep, generated, trial.answer_ids)
            ids = np.concatenate([trial.input_ids[:-size], answer])
            trial = Trial(ids, answer, trial.depth)
        said.append(generated.tolist())
        trials.append(trial)
    expected = [trial.answer_ids.tolist() == s for trial, s in zip(trials, said, strict=True)]
    assert 0 < sum(expected) < len(expected)
    judged = Halves(model)
    assert exact_match(judged, trials).tolist() == expected
    alone = [bool(exact_match(judged, [trial])[0]) for trial in trials]
    assert alone == expected


@pytest.mark.parametrize("trials", [1, 7, 11, 20, 40, 1000])
def test_the_interval_is_wilsons(trials: int) -> None:
    for correct in (0, trials // 2, trials):
        low, high = wilson_interval(correct, trials)
        expected = stats.binomtest(correct, trials).proportion_ci(0.95, method="wilson")
        assert (low, high) == pytest.approx((expected.low, expected.high))
        assert 0 <= low <= correct / trials <= high <= 1


def test_only_depths_that_occur_are_reported() -> None:
    assert by_depth(Answered(64, np.array([True, False, True]), [0.0, 0.05, 1.0])) == [
        {"depth": 0.05, "accuracy": 0.5, "trials": 2},
        {"depth": 0.95, "accuracy": 1.0, "trials": 1},
    ]


def test_a_stage_logs_a_row_a_length(parents: dict[str, Path], tmp_path: Path) -> None:
    section = {"kind": "passkey", "from": "m", "lengths": [64, 16], "trials": 20}
    stage = read_section(Passkey, {**section, "form": "symbolic"})
    folder, result = ran(stage, tmp_path, parents)
    rows = {row.step: row.values["passkey_accuracy_by_length"] for row in folder.rows()}
    assert rows == {64: 0.0, 16: 0.0}  # the model is untrained
    assert measured(result) == {("passkey_accuracy_by_length", x): 0.0 for x in (64, 16)}
    for metric in result["metrics"]:
        assert metric["ci95"] == list(wilson_interval(0, 20))
        assert metric["n"] == 20
        by_depth = result["details"]["by_depth"][str(metric["x"])]
        assert sum(tenth["trials"] for tenth in by_depth) == 20
    progress = folder.progress()
    assert progress is not None
    assert progress["total"] == 20 * 80


class Copier(Logits):
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


@pytest.mark.parametrize(
    ("form", "real"), [("english", False), ("english", True), ("symbolic", False)]
)
def test_a_perfect_retriever_is_right_in_every_cell(form: str, real: bool) -> None:
    text = np.array(BYTE.encode("Call me Ishmael. " * 40)) if real else None
    model = Copier(len("pass key is") if form == "english" else len("#"))
    for length in (350, 512):
        needle = stage(Needle, length, depths=3, trials=4, form=form)
        result = needle.score(model, BYTE, length, "needle", text, batch_tokens=1000)
        assert result.correct.shape == (12,)
        assert result.accuracy == 1.0


def test_a_model_that_reaches_half_back_is_right_in_the_deeper_half() -> None:
    needle = stage(Needle, 206, depths=11, trials=3, form="symbolic")
    result = needle.score(Copier(1, reach=100), BYTE, 206, "needle")
    # Free tokens: 194; the answer is 6 + 194 · (1 − depth) tokens after the key.
    right = [6 + 194 - round(194 * depth) <= 100 for depth in np.linspace(0, 1, 11)]
    drawn = needle.heatmap([result])
    assert drawn["y"] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert drawn["x"] == [206]
    assert drawn["values"] == [[float(found)] for found in right]


def test_the_error_is_that_of_trials_not_of_prompts() -> None:
    right = np.array([[True, False, True, True], [True, False, False, True]])
    for trials, error in ((4, pytest.approx(stats.sem([1.0, 0.0, 0.5, 1.0]))), (1, None)):
        answered = Answered(64, right[:, :trials].ravel(), ())
        needle = stage(Needle, 64, depths=2, trials=trials)
        assert needle.measured(answered) == {"stderr": error}


def test_a_stage_logs_a_row_a_length_and_leaves_a_heat_map(
    parents: dict[str, Path], tmp_path: Path
) -> None:
    section: dict[str, Any] = {"kind": "needle", "from": "m", "lengths": [400, 350]}
    section |= {"corpus": "python-docs", "depths": 3, "trials": 2}
    stage = read_section(Needle, section)
    folder, result = ran(stage, tmp_path, parents)
    assert [(row.step, row.values) for row in folder.rows()] == [
        (350, {"needle_accuracy_by_length": 0.0, "needle_accuracy_by_length_stderr": 0.0}),
        (400, {"needle_accuracy_by_length": 0.0, "needle_accuracy_by_length_stderr": 0.0}),
    ]
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
    assert progress["total"] == 6 * 750


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


class Reader(Logits):
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


@pytest.mark.parametrize("length", [64, 200])
def test_a_perfect_model_is_always_right(length: int) -> None:
    ruler = stage(Ruler, length, trials=30, **RULER)
    for task, answer in (("key-value", look_up), ("variable-tracking", follow)):
        result = ruler.score(Reader(answer, 2), BYTE, length, task, batch_tokens=500)
        assert result.correct.shape == (30,)
        assert result.accuracy == 1.0


def test_a_guesser_scores_what_chance_gives() -> None:
    chance = random.Random(0)
    ruler = stage(Ruler, 48, trials=1500, **RULER)
    for task, answer, expected in (
        ("key-value", any_value(chance), 1 / 5),
        ("variable-tracking", any_variables(chance, 2), 1 / 6),
    ):
        result = ruler.score(Reader(answer, 2), BYTE, 48, task)
        assert result.chance == expected
        assert stats.binomtest(int(result.correct.sum()), 1500, expected).pvalue > 0.001


def test_one_wrong_variable_is_wrong() -> None:
    def first_twice(prompt: str) -> str:
        return 2 * follow(prompt)[:1]

    ruler = stage(Ruler, 48, trials=20, **RULER)
    assert ruler.score(Reader(first_twice, 2), BYTE, 48, "variable-tracking").accuracy == 0


def test_a_stage_logs_a_metric_for_each_task(parents: dict[str, Path], tmp_path: Path) -> None:
    section = {"kind": "ruler", "from": "m", "lengths": [64, 48], "trials": 10, "digits": 2}
    stage = read_section(Ruler, {**section, "form": "symbolic", "chains": 2})
    folder, result = ran(stage, tmp_path, parents)
    names = {"ruler_key_value_accuracy_by_length", "ruler_variable_tracking_accuracy_by_length"}
    assert {row.step: set(row.values) for row in folder.rows()} == {64: names, 48: names}
    assert measured(result).keys() == {(name, x) for name in names for x in (64, 48)}
    for metric in result["metrics"]:
        right = round(10 * metric["value"])
        assert metric["ci95"] == list(wilson_interval(right, 10))
        assert metric["n"] == 10
        if "key_value" in metric["name"]:
            assert metric["chance"] == 1 / 4
    progress = folder.progress()
    assert progress is not None
    assert progress["total"] == 20 * 112
