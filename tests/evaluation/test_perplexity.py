"""Perplexity against closed forms, a plain loop, and Hugging Face's loss."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measured import measured, ran
from models import Halves, Logits, llama
from sections import read_section
from torch import Tensor, nn

from fope_lab.config.problems import ConfigError
from fope_lab.data.packing import PackedCorpus
from fope_lab.data.problems import DataError
from fope_lab.evaluation.context import run
from fope_lab.evaluation.perplexity import Perplexity
from fope_lab.evaluation.perplexity.losses import LOSS_ROWS, WINDOWS, perplexity
from fope_lab.model import load_model
from fope_lab.store.root import Store

VOCABULARY = 23


class Uniform(Logits):
    """Every token is as likely as any other."""

    def hidden(self, ids: Tensor) -> Tensor:
        return torch.full((*ids.shape, VOCABULARY), 1.7)


class Contextual(nn.Module):
    """Logits that depend on all the tokens before, so that a wrong context gives another loss."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(torch.randn(VOCABULARY, VOCABULARY, generator=generator))
        self.rows: list[tuple[int, ...]] = []
        self.logits: list[int] = []

    def hidden(self, ids: Tensor) -> Tensor:
        self.rows.append(tuple(ids.shape))
        return self.table[ids].cumsum(1)

    def head(self, hidden: Tensor) -> Tensor:
        self.logits.append(len(hidden))
        return hidden / 2


def text(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCABULARY, count).astype(np.uint16)


def losses(
    model: Contextual, tokens: np.ndarray, contexts: dict[int, int]
) -> list[tuple[int, float]]:
    """In float64, one prediction at a time: target → its context's first token. Of each the tokens
    of context and the loss."""
    found = []
    table = model.table.detach().double()
    for target, start in contexts.items():
        logits = table[torch.from_numpy(tokens[start:target].astype(int))].sum(0) / 2
        loss = -torch.log_softmax(logits, 0)[int(tokens[target])]
        found.append((target - start, float(loss)))
    return found


def reference(model: Contextual, tokens: np.ndarray, contexts: dict[int, int]) -> float:
    """exp of the mean loss."""
    return math.exp(float(np.mean([loss for _, loss in losses(model, tokens, contexts)])))


def sliding_contexts(count: int, length: int, stride: int) -> list[dict[int, int]]:
    """Of each window the predicted tokens and where their context begins."""
    windows = [dict.fromkeys(range(1, length + 1), 0)]
    while (done := max(windows[-1])) < count - 1:
        end = min(done + stride, count - 1)
        windows.append(dict.fromkeys(range(done + 1, end + 1), end - length))
    return windows


METHODS = st.one_of(
    st.just(("chunked", None)), st.integers(1, 40).map(lambda stride: ("sliding", stride))
)


@given(st.integers(1, 50), st.integers(1, 300), METHODS)
def test_every_token_but_the_first_is_predicted_once(
    length: int, more: int, method: tuple[str, int | None]
) -> None:
    count = length + more
    stride = method[1] and min(method[1], length)
    windows = list(WINDOWS[method[0]](count, length, stride))
    targets = [t for w in windows for t in range(w.scored + 1, w.end + 1)]
    assert targets == list(range(1, count))
    assert all(0 <= w.start <= w.scored < w.end <= w.start + length for w in windows)
    if stride is not None:
        assert all(w.end - w.start == length for w in windows)
        assert all(w.scored - w.start >= length - stride for w in windows[1:])


@pytest.mark.parametrize("length", [1, 5, 8, 60])
@pytest.mark.parametrize("batch_tokens", [1, 16, 1000])
def test_chunks_see_nothing_of_each_other(length: int, batch_tokens: int) -> None:
    tokens, model = text(61), Contextual()
    contexts = {target: (target - 1) // length * length for target in range(1, 61)}
    result = perplexity(model, tokens, length, batch_tokens=batch_tokens)
    assert result.perplexity == pytest.approx(reference(model, tokens, contexts), rel=1e-5)
    assert max(rows * width for rows, width in model.rows) <= max(batch_tokens, length)


@pytest.mark.parametrize(("length", "stride"), [(5, 1), (5, 3), (5, 5), (8, 2), (60, 7)])
@pytest.mark.parametrize("batch_tokens", [1, 40])
def test_a_sliding_window_scores_its_end(length: int, stride: int, batch_tokens: int) -> None:
    tokens, model = text(61), Contextual()
    windows = sliding_contexts(61, length, stride)
    contexts = {target: start for window in windows for target, start in window.items()}
    result = perplexity(
        model, tokens, length, method="sliding", stride=stride, batch_tokens=batch_tokens
    )
    assert result.perplexity == pytest.approx(reference(model, tokens, contexts), rel=1e-5)
    assert sum(model.logits) == result.count  # none of tokens that are not scored
    means = [np.mean([loss for _, loss in losses(model, tokens, window)]) for window in windows]
    assert result.windows == len(windows)
    assert result.window_loss == pytest.approx(np.mean(means), rel=1e-5)


@pytest.mark.parametrize(("length", "stride"), [(8, 8), (8, 3), (10, 1), (60, 7)])
@pytest.mark.parametrize("buckets", [1, 3, 8])
def test_positions_are_tokens_of_context(length: int, stride: int, buckets: int) -> None:
    tokens, model = text(61), Contextual()
    windows = sliding_contexts(61, length, stride)
    contexts = {target: start for window in windows for target, start in window.items()}
    by_context = losses(model, tokens, contexts)
    result = perplexity(model, tokens, length, method="sliding", stride=stride, batch_tokens=20)
    found = result.by_position(buckets)
    assert [bucket.first_context for bucket in found] == [
        1,
        *(bucket.last_context + 1 for bucket in found[:-1]),
    ]
    sizes = [bucket.last_context + 1 - bucket.first_context for bucket in found]
    assert (len(found), found[-1].last_context) == (buckets, length)
    assert max(sizes) - min(sizes) <= 1
    for bucket in found:
        of = [x for n, x in by_context if bucket.first_context <= n <= bucket.last_context]
        assert bucket.count == len(of)
        assert bucket.perplexity == pytest.approx(math.exp(np.mean(of)), rel=1e-5)
    assert sum(bucket.count for bucket in found) == result.count
    assert sum(bucket.loss_sum for bucket in found) == pytest.approx(result.loss_sum, rel=1e-12)
    assert result.as_json()["mean_context"] == pytest.approx(np.mean([n for n, _ in by_context]))


def test_buckets_fit_the_length() -> None:
    result = perplexity(Uniform(), text(61), 8)
    for wrong in (0, 9):
        with pytest.raises(ValueError, match=f"found {wrong} buckets, needs 1 to the length 8"):
            result.by_position(wrong)


def test_hugging_faces_loss_is_ours() -> None:
    theirs = llama(VOCABULARY)
    tokens = text(49)
    # 16 predictions a window: windows share a token.
    rows = torch.stack([torch.from_numpy(tokens[i : i + 17].astype(int)) for i in (0, 16, 32)])
    with torch.inference_mode():
        loss = theirs(rows, labels=rows).loss

    result = perplexity(Halves(theirs), tokens, 16, batch_tokens=32)
    assert result.loss == pytest.approx(float(loss), rel=1e-5)


def prefixed_loss(model: Any, prefix: list[int], window: np.ndarray, scored: int) -> Any:
    """transformers' loss of the last `scored` tokens of a window after a prefix, whose own tokens
    have no label."""
    ids = torch.tensor([[*prefix, *window.tolist()]])
    labels = torch.full_like(ids, -100)
    labels[:, -scored:] = ids[:, -scored:]
    with torch.inference_mode():
        return float(model(ids, labels=labels).loss) * scored


@pytest.mark.parametrize("prefix", [[], [3], [3, 5]])
@pytest.mark.parametrize(("length", "stride"), [(16, None), (16, 5), (8, 6)])
def test_each_window_begins_with_the_prefix_as_in_a_loop_over_hugging_faces_model(
    prefix: list[int], length: int, stride: int | None
) -> None:
    theirs, tokens = llama(VOCABULARY), text(60)
    room, total, end = length - len(prefix), 0.0, 0
    while end < 59:
        # A window reads `room` tokens and predicts the one after each; those of a window before
        # are not scored again.
        start = end if stride is None else max(0, min(end + stride, 59) - room) if end else 0
        last = min(start + room, 59)
        total += prefixed_loss(theirs, prefix, tokens[start : last + 1].astype(int), last - end)
        end = last
    options: Any = {} if stride is None else {"method": "sliding", "stride": stride}
    result = perplexity(Halves(theirs), tokens, length, prefix=prefix, batch_tokens=50, **options)
    assert result.count == 59
    assert result.loss_sum == pytest.approx(total, rel=1e-5)
    assert not result.counts[: len(prefix)].any()  # nothing is predicted from the prefix alone
    assert result.counts[len(prefix) :].all()


def test_logits_are_never_held_whole() -> None:
    tokens, model = text(4000), Contextual()
    result = perplexity(model, tokens, 3000, batch_tokens=100_000)
    assert max(model.logits) <= LOSS_ROWS
    assert sum(model.logits) == result.count == 3999


def test_what_can_not_be_measured_is_told() -> None:
    with pytest.raises(ValueError, match=r"length 61 needs at least 62 tokens .* there are 61"):
        perplexity(Uniform(), text(61), 61)
    with pytest.raises(ValueError, match="a stride from 1 to the 8 tokens of text in a window, f"):
        perplexity(Uniform(), text(61), 8, method="sliding", stride=9)
    with pytest.raises(ValueError, match="stride 4 has no effect with method chunked"):
        perplexity(Uniform(), text(61), 8, stride=4)
    with pytest.raises(ValueError, match="length 2, needs more than the 2 tokens of the prefix"):
        perplexity(Uniform(), text(61), 2, prefix=[1, 2])
    broken = Contextual()
    broken.table.data[:, 3] = math.nan
    with pytest.raises(ValueError, match="the loss at length 8 is nan"):
        perplexity(broken, text(61), 8)


def make_stage(**options: Any) -> Perplexity:
    section = {"kind": "perplexity", "from": "m", "corpus": "python-docs", "lengths": [32, 8, 256]}
    return read_section(Perplexity, {**section, **options})


@pytest.mark.parametrize(
    "options", [{}, {"method": "sliding", "stride": 8}, {"part": "second-half"}]
)
def test_a_stage_logs_a_row_a_length(
    parents: dict[str, Path], tmp_path: Path, options: dict[str, Any]
) -> None:
    stage = make_stage(tokens=1000, batch_tokens=512, **options)
    folder, result = ran(stage, tmp_path, parents)
    tokens = PackedCorpus(parents["data.0"], {}).tokens[:]
    tokens = tokens[len(tokens) // 2 if options.pop("part", None) else 0 :][:1000]
    model = load_model(parents["from"])
    text = bytes(token for token in tokens[1:] if token < 256)  # the tokenizer is `byte`
    assert 0 < len(text) < 999  # there are special tokens, and they have no text
    assert result["recorded"]["bytes"] == len(text)
    assert [row.step for row in folder.rows()] == [32, 8, 256]
    for row in folder.rows():
        expected = perplexity(model, tokens, row.step, **options).perplexity
        assert row.values["perplexity_by_length"] == pytest.approx(expected, rel=1e-6)
        assert row.values["loss_by_length"] == pytest.approx(math.log(expected), rel=1e-6)
        bits = 999 * math.log2(expected) / len(text)
        assert row.values["bits_per_byte_by_length"] == pytest.approx(bits, rel=1e-6)
        assert (
            measured(result)["perplexity_by_length", row.step] == row.values["perplexity_by_length"]
        )
        assert result["recorded"]["tokens"][str(row.step)] == 999
    progress = folder.progress()
    assert progress is not None
    assert progress["total"] == 3 * 999


@pytest.mark.parametrize("average", ["tokens", "windows"])
def test_a_stage_logs_positions_of_the_largest_length(
    parents: dict[str, Path], tmp_path: Path, average: str
) -> None:
    how: dict[str, Any] = {"method": "sliding", "stride": 6}
    stage = make_stage(tokens=1000, average=average, position_buckets=5, **how)
    folder, result = ran(stage, tmp_path, parents)
    tokens = PackedCorpus(parents["data.0"], {}).tokens[:1000]
    model = load_model(parents["from"])
    rows = list(folder.rows())
    for row in rows[:3]:
        whole = perplexity(model, tokens, row.step, **how)
        expected = whole.loss if average == "tokens" else whole.window_loss
        assert row.values["loss_by_length"] == pytest.approx(expected, rel=1e-6)
        assert row.values["perplexity_by_length"] == pytest.approx(math.exp(expected), rel=1e-6)
    buckets = perplexity(model, tokens, 256, **how).by_position(5)
    assert [row.step for row in rows[3:]] == [51, 102, 153, 204, 256]
    for row, bucket, entry in zip(rows[3:], buckets, result["details"]["by_position"], strict=True):
        assert row.values == {"perplexity_by_position": pytest.approx(bucket.perplexity, rel=1e-6)}
        assert entry["last_context"] == row.step
        assert entry["count"] == bucket.count
    assert sum(entry["count"] for entry in result["details"]["by_position"]) == 999
    assert result["recorded"]["average"] == average
    assert "end-of-text token between them" in result["recorded"]["packing"]
    sums = result["details"]["sums"]
    contexts = [sums[str(length)]["corpus"]["mean_context"] for length in (32, 8, 256)]
    assert contexts[1] < contexts[0] < contexts[2] < 256


def test_more_buckets_than_positions_are_told() -> None:
    with pytest.raises(ConfigError, match="found 257, needs at most the largest length 256"):
        make_stage(position_buckets=257)


def test_a_stage_that_can_not_be_measured_fails_at_once(
    parents: dict[str, Path], tmp_path: Path
) -> None:
    folder = Store(tmp_path).folder("perplexity", "key")
    with (
        pytest.raises(ValueError, match="needs 100,001 tokens"),
        folder.begin("test", {}) as attempt,
    ):
        run(make_stage(lengths=[8, 100_000]), attempt.writer, parents)
    assert folder.attempts.newest().ending == "failed"
    assert not list((folder.path / "metrics").glob("*"))
    wrong = {**parents, "data.0": parents["from"]}
    with (
        pytest.raises(DataError, match="is not prepared data"),
        folder.begin("test", {}) as attempt,
    ):
        run(make_stage(), attempt.writer, wrong)
