"""Groups of rows of similar length against the whole padded batch, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sections import read_section
from torch import Tensor

from fope_lab.data.mixture import Batch, TrainingData
from fope_lab.data.recipe import parse_data
from fope_lab.data.rows import IGNORED
from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.model import ModelConfig
from fope_lab.model.decoder import Decoder
from fope_lab.stages.training import TrainSettings
from trainers.step import StepRunner, length_groups, tokens_from_first_label
from trainers.workers import FLOAT32, Precision, WorkerGroup

ROWS, LENGTH = 11, 22
LEARNED = {"type": "learned", "num_positions": 60, "random_offset": True}
TOKENIZER = load_tokenizer("symbols:repeat_copy")
DATA = TrainingData(
    parse_data(
        {"task": "algorithmic", "subtask": "repeat_copy", "longest": 9, "length": LENGTH}, Path()
    ),
    {},
    TOKENIZER,
    batch_size=ROWS,
    seed=0,
)


def gradient(embedding: Any, **changes: Any) -> tuple[float, dict[str, Tensor]]:
    """The loss of a step, and its gradient."""
    sizes = ModelConfig(num_layers=2, num_heads=2, head_dim=8, vocab_size=TOKENIZER.tokens)
    model = Decoder(sizes, embedding, train_length=LENGTH, seed=2).double()
    fields = {"tokens": 100, "batch_tokens": ROWS * LENGTH, "learning_rate": 0.1}
    runner = StepRunner(
        model, read_section(TrainSettings, fields | changes), torch.device("cpu"), WorkerGroup()
    )
    torch.manual_seed(3)
    loss = float(runner.backward(DATA.batch(0)))
    return loss, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("embedding", ["rope", "alibi", "fire", "fope", "random-rope", LEARNED])
@pytest.mark.parametrize(("groups", "micro"), [(1, 2), (3, None), (4, 2), (50, None)])
def test_the_gradient_is_that_of_the_whole_padded_batch(
    embedding: Any, groups: int, micro: int | None
) -> None:
    """Random positions are drawn before rows are sorted and cut, so that they stay with them."""
    loss, expected = gradient(embedding)
    tokens = None if micro is None else micro * LENGTH
    found_loss, found = gradient(embedding, length_groups=groups, micro_batch_tokens=tokens)
    assert found_loss == pytest.approx(loss, rel=1e-6)  # the loss itself is float32
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-13)


@settings(deadline=None)
@given(ends=st.lists(st.integers(0, 6), min_size=1, max_size=8), rows=st.integers(1, 9))
def test_groups_hold_each_row_once_and_no_padding_behind_the_longest(
    ends: list[int], rows: int
) -> None:
    ids = torch.arange(len(ends))[:, None].expand(-1, 6)
    labels = torch.where(torch.arange(6) < torch.tensor(ends)[:, None], ids, IGNORED)
    lengths = torch.tensor(ends)
    drawn = ids * 100 + torch.arange(6)
    groups = list(length_groups(Batch(ids, labels, drawn, lengths, drawn), rows))
    assert [len(group.input_ids) for group in groups[:-1]] == [rows] * (len(groups) - 1)
    seen = [int(row[0]) for group in groups for row in group.input_ids]
    assert sorted(seen) == list(range(len(ends)))
    widths = [group.input_ids.shape[1] for group in groups]
    assert widths == sorted(widths, reverse=True)
    for group in groups:
        own = [ends[int(row[0])] for row in group.input_ids]
        assert group.input_ids.shape[1] == max(1, *own)
        number = group.input_ids[:, :1]
        expected = number * 100 + torch.arange(group.input_ids.shape[1])
        assert torch.equal(group.positions, expected)
        assert torch.equal(group.documents, expected)
        assert ((group.labels != IGNORED).sum(1) == torch.tensor(own)).all()


@given(starts=st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_the_last_layer_computes_from_the_first_label_on(starts: list[int]) -> None:
    """A start of 6 is a row without labels."""
    labels = torch.where(torch.arange(6) >= torch.tensor(starts)[:, None], 1, IGNORED)
    assert tokens_from_first_label(labels) == max(1, 6 - min(starts))


def test_without_the_setting_rows_keep_their_order_and_their_padding() -> None:
    """So that no bit of an existing training changes."""
    seen: list[Tensor] = []

    class Seen(WorkerGroup):
        def wrap(self, model: Decoder, device: torch.device, precision: Precision = FLOAT32) -> Any:
            model.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
            return model

    sizes = ModelConfig(num_layers=1, num_heads=1, head_dim=8, vocab_size=TOKENIZER.tokens)
    model = Decoder(sizes, "rope", train_length=LENGTH, seed=2)
    fields = {"tokens": 100, "batch_tokens": ROWS * LENGTH, "learning_rate": 0.1}
    chosen = read_section(TrainSettings, fields)
    StepRunner(model, chosen, torch.device("cpu"), Seen()).backward(DATA.batch(0))
    assert len(seen) == 1
    assert torch.equal(seen[0], DATA.batch(0).input_ids)
