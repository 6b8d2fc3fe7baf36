"""Algorithmic tasks: models of known ability, and a stage from its checkpoint to its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from measured import measured, ran
from models import Logits
from scipy import stats
from sections import read_section
from sweep_files import told
from torch import Tensor

from fope_lab.data.problems import DataError
from fope_lab.data.tasks.algorithmic import SUBTASKS
from fope_lab.data.tokenizers.tokenizer import SymbolTokenizer
from fope_lab.evaluation.algorithmic import Algorithmic, questions
from fope_lab.evaluation.scoring.exact_match import exact_match
from fope_lab.model import Decoder, ModelConfig, load_model, save_model


def asked(subtask: str, shortest: int, longest: int, count: int = 200) -> list[Any]:
    definition = SUBTASKS[subtask]
    tokenizer = SymbolTokenizer(definition.tokenizer)
    return questions(definition, tokenizer, shortest, longest, count)


class Copier(Logits):
    """Copies what stands before <sep>, but stops at symbol number `until`."""

    def __init__(self, subtask: str, until: int) -> None:
        super().__init__()
        self.tokenizer = SymbolTokenizer(f"symbols:{subtask}")
        self.until = until

    def hidden(self, ids: Tensor) -> Tensor:
        logits = torch.zeros(*ids.shape, self.tokenizer.tokens)
        for row, tokens in enumerate(ids.tolist()):
            sep = tokens.index(self.tokenizer.sep_id)
            for place in range(sep, len(tokens)):
                number = place - sep
                ended = number == min(sep - 1, self.until)
                next_token = self.tokenizer.eos_id if ended else tokens[1 + number]
                logits[row, place, next_token] = 1.0
        return logits


class Guesser(Logits):
    """Guesses bits, but knows where the answer ends."""

    def __init__(self, answer_length: int, tokenizer: SymbolTokenizer) -> None:
        super().__init__()
        self.size, self.tokenizer = answer_length, tokenizer
        self.generator = torch.Generator().manual_seed(0)

    def hidden(self, ids: Tensor) -> Tensor:
        logits = torch.full((*ids.shape, self.tokenizer.tokens), -1.0)
        logits[..., :2] = torch.rand(*ids.shape, 2, generator=self.generator)
        ends = (ids == self.tokenizer.sep_id).cumsum(1).cumsum(1) > self.size
        logits[..., self.tokenizer.eos_id] = ends.float() * 2
        return logits


@pytest.mark.parametrize("subtask", ["unique_copy", "repeat_copy"])
def test_a_model_that_copies_is_right_as_long_as_it_goes_on(subtask: str) -> None:
    strings = asked(subtask, 11, 30)
    lengths = np.array([len(one.answer_ids) - 1 for one in strings])
    assert set(lengths) == set(range(11, 31))
    assert exact_match(Copier(subtask, 1000), strings).all()
    assert np.array_equal(exact_match(Copier(subtask, 20), strings), lengths <= 20)


@pytest.mark.parametrize(("subtask", "answer_length"), [("bin_majority_interleave", 3)])
def test_a_guesser_is_right_by_the_chance_that_is_declared(
    subtask: str, answer_length: int
) -> None:
    strings = asked(subtask, 0, 50, 2000)
    definition = SUBTASKS[subtask]
    model = Guesser(answer_length, SymbolTokenizer(definition.tokenizer))
    right = int(exact_match(model, strings).sum())
    chance = definition.answer_symbols**-answer_length
    assert stats.binomtest(right, len(strings), chance).pvalue > 0.001


@pytest.mark.parametrize("subtask", SUBTASKS)
def test_the_strings_of_a_range_are_the_same_for_all_and_within_it(subtask: str) -> None:
    one, other = (asked(subtask, 51, 100, 50) for _ in range(2))
    definition = SUBTASKS[subtask]
    for first, second in zip(one, other, strict=True):
        assert np.array_equal(first.input_ids, second.input_ids)
        frame = 2 + definition.separated - 1
        assert 51 <= len(first.input_ids) - len(first.answer_ids) - frame <= 100
        assert np.array_equal(first.input_ids[-len(first.answer_ids) :], first.answer_ids)


def test_from_a_checkpoint_to_a_result(tmp_path: Path) -> None:
    """The stage's numbers are those of its questions, whatever is read at once."""
    tokenizer = SymbolTokenizer("symbols:repeat_copy")
    config = ModelConfig(num_layers=1, num_heads=2, head_dim=16, vocab_size=tokenizer.tokens)
    model = Decoder(config, "rope", train_length=23, seed=1)
    save_model(tmp_path / "model", model, context_length=23, tokenizer=tokenizer.name)
    fields = {"from": "p", "subtask": "repeat_copy", "lengths": [4, 2], "count": 300}
    found = []
    for tokens in (10, 10_000):
        spec = read_section(Algorithmic, {**fields, "batch_tokens": tokens})
        _, result = ran(spec, tmp_path, {"from": tmp_path / "model"}, str(tokens))
        found.append(measured(result))
    assert found[0] == found[1]
    loaded = load_model(tmp_path / "model")
    expected = {
        longest: exact_match(loaded, asked("repeat_copy", shortest, longest, 300)).mean()
        for shortest, longest in ((0, 2), (3, 4))
    }
    name = "algorithmic_accuracy_by_input_length"
    assert {x: found[0][name, x] for x in (2, 4)} == pytest.approx(expected)
    assert found[0]["algorithmic_accuracy", None] == pytest.approx(expected[2])
    chances = {m["x"]: m["chance"] for m in result["metrics"] if m["name"] == name}
    assert 1 / 4 < chances[2] < 1 / 2
    assert 1 / 16 < chances[4] < 1 / 8


def test_a_model_with_other_symbols_is_refused(tmp_path: Path) -> None:
    model = Decoder(
        ModelConfig(num_layers=1, num_heads=2, head_dim=16, vocab_size=272), "rope", train_length=8
    )
    save_model(tmp_path / "model", model, context_length=8, tokenizer="byte")
    spec = read_section(Algorithmic, {"from": "p", "subtask": "parity"})
    with pytest.raises(DataError, match="parity needs tokenizer: symbols:parity, and found byte"):
        ran(spec, tmp_path, {"from": tmp_path / "model"})


FILE = """name: x
stages:
  p: {{kind: pretrain, model: tiny, embedding: rope, tokenizer: {tokenizer},
      data: {{task: algorithmic, {data}}}, train: {{tokens: 1e5, batch_tokens: 5400,
      learning_rate: 1e-3}}}}
  e: {{kind: algorithmic, from: p, {evaluation}}}
"""
PARITY = {
    "tokenizer": "symbols:parity",
    "data": "subtask: parity, length: 54",
    "evaluation": "subtask: parity",
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"evaluation": "subtask: party"},
            ["6 stages.e.subtask: found 'party'; did you mean 'parity'? (allowed: addition,"],
        ),
        (
            {"data": "subtask: parity, length: 50", "evaluation": "subtask: parity"},
            ["stages.p.data.length: parity needs 54 tokens for inputs of up to longest = 50"],
        ),
        (
            {"tokenizer": "byte"},
            ["stages.p.data.task: parity needs tokenizer: symbols:parity, and found byte"],
        ),
        (
            {"tokenizer": "symbols:party"},
            ["unknown tokenizer 'symbols:party'; did you mean 'symbols:parity'"],
        ),
        (
            {"evaluation": "subtask: sort"},
            ["stages.e.subtask: found sort, and the model is trained on parity"],
        ),
        (
            {"evaluation": "subtask: parity, lengths: [40, 80]"},
            ["stages.e.lengths: found 40 as the end of the first range, and the model is trained"],
        ),
        (
            {
                "tokenizer": "symbols:sort",
                "data": "subtask: sort, length: 108",
                "evaluation": "subtask: sort, lengths: [50, 200]",
            },
            ["stages.e.lengths: found 200, and an input of sort has at most 150 symbols"],
        ),
        (
            {
                "tokenizer": "symbols:bin_majority_interleave",
                "data": "subtask: bin_majority_interleave, length: 108",
                "evaluation": "subtask: bin_majority_interleave, lengths: [48, 50]",
            },
            ["lengths: found 50, and no input of bin_majority_interleave has from 49 to 50"],
        ),
    ],
)
def test_wrong_files(tmp_path: Path, change: dict[str, str], expected: list[str]) -> None:
    found = told(tmp_path, FILE.format(**{**PARITY, **change}))
    assert len(found) == len(expected), found
    for problem, part in zip(found, expected, strict=True):
        assert part in problem
