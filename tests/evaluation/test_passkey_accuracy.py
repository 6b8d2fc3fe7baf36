"""Passkey accuracy: models of known ability, and greedy generation as the judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from measured import measured
from scipy import stats
from sections import read_section
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from fope_lab.data.tasks.passkey import Trial, build_trial, prompt_form
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation.context import run
from fope_lab.evaluation.retrieval import Passkey, PasskeyResult, passkey_accuracy
from fope_lab.evaluation.scoring.exact_match import exact_match
from fope_lab.statistics.intervals import wilson_interval
from fope_lab.store import Store

BYTE = ByteTokenizer()
NEEDLES = {"symbolic": b"#", "english": b"The pass key is"}


class Retriever(nn.Module):
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

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


class Guesser(nn.Module):
    """Draws every digit at random."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def hidden(self, ids: Tensor) -> Tensor:
        logits = torch.full((*ids.shape, 272), -1.0)
        logits[..., ord("0") : ord("9") + 1] = torch.rand(*ids.shape, 10, generator=self.generator)
        return logits

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


class Halves(nn.Module):
    """A model of transformers in the two parts that are asked for."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.model, self.head = model.model, model.lm_head

    def hidden(self, ids: Tensor) -> Tensor:
        return self.model(ids).last_hidden_state


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
        result = passkey_accuracy(
            model, BYTE, length, trials=12, form=form, batch_tokens=batch_tokens
        )
        assert result.accuracy == 1.0
        assert result.correct.shape == (12,)


@pytest.mark.parametrize("length", [12, 20, 90])
def test_a_guesser_is_right_by_chance(length: int) -> None:
    """Digit by digit one in ten; all five digits never in so few trials."""
    model = Guesser()
    trials = [build_trial(BYTE, length, i, form="symbolic") for i in range(2000)]
    assert exact_match(model, trials).sum() <= 1
    for digits, chance in ((1, 0.1), (2, 0.01)):
        ends = [Trial(t.input_ids, t.answer_ids[-digits:], t.depth) for t in trials]
        right = int(exact_match(model, ends).sum())
        assert stats.binomtest(right, 2000, chance).pvalue > 0.001


def test_a_model_that_reaches_half_back_is_right_on_the_nearer_half() -> None:
    model = Retriever(b"#", reach=100)
    result = passkey_accuracy(model, BYTE, 200, trials=400, form="symbolic")
    # The answer's first token lies 194 − (tokens before the key) after the key's.
    distances = (1 - result.depths) * 188 + 6
    assert (result.correct == (distances <= 100)).all()
    by_depth = result.by_depth
    assert [entry["depth"] for entry in by_depth] == pytest.approx(np.arange(0.05, 1, 0.1))
    assert sum(entry["trials"] for entry in by_depth) == 400
    assert [entry["accuracy"] for entry in by_depth[:5]] == [0.0] * 5
    assert [entry["accuracy"] for entry in by_depth[5:]] == [1.0] * 5


@pytest.mark.parametrize("merges", [0, 80])
def test_greedy_generation_agrees_on_every_trial(
    make_bpe: Callable[[int], Any], merges: int
) -> None:
    """Half of the answers are replaced by what the model says, so that both verdicts occur."""
    tokenizer = make_bpe(merges)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            initializer_range=0.3,
        )
    ).eval()
    prompts = prompt_form("english", tokenizer)
    said, trials = [], []
    for index in range(24):
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


@pytest.mark.parametrize(("correct", "trials"), [(0, 7), (7, 7), (3, 10), (987, 1000)])
def test_the_interval_is_wilsons(correct: int, trials: int) -> None:
    expected = stats.binomtest(correct, trials).proportion_ci(0.95, method="wilson")
    assert wilson_interval(correct, trials) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("trials", [1, 11, 20, 40, 1000])
def test_the_interval_holds_the_share(trials: int) -> None:
    for correct in (0, trials // 2, trials):
        low, high = wilson_interval(correct, trials)
        assert 0 <= low <= correct / trials <= high <= 1


def test_only_depths_that_occur_are_reported() -> None:
    result = PasskeyResult(64, np.array([True, False, True]), depths=np.array([0.0, 0.05, 1.0]))
    assert result.by_depth == [
        {"depth": 0.05, "accuracy": 0.5, "trials": 2},
        {"depth": 0.95, "accuracy": 1.0, "trials": 1},
    ]


def test_a_stage_logs_a_row_a_length(parents: dict[str, Path], tmp_path: Path) -> None:
    section = {"kind": "passkey", "from": "m", "lengths": [64, 16], "trials": 20}
    stage = read_section(Passkey, {**section, "form": "symbolic"})
    folder = Store(tmp_path).folder("passkey", "key")
    with folder.begin("test", {}) as attempt:
        attempt.finish(run(stage, attempt.writer, parents))
    rows = {row.step: row.values["passkey_accuracy_by_length"] for row in folder.rows()}
    assert rows == {64: 0.0, 16: 0.0}  # the model is untrained
    result = folder.result()
    assert result is not None
    assert measured(result) == {("passkey_accuracy_by_length", x): 0.0 for x in (64, 16)}
    for metric in result["metrics"]:
        assert metric["ci95"] == list(wilson_interval(0, 20))
        assert metric["n"] == 20
        by_depth = result["details"]["by_depth"][str(metric["x"])]
        assert sum(tenth["trials"] for tenth in by_depth) == 20
    progress = folder.progress()
    assert progress is not None
    assert progress["step"] == progress["total"] == 20 * 80
