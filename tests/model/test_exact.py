"""Attention that no fused kernel computes: its gradients, and what it keeps in memory."""

from __future__ import annotations

import subprocess
import sys
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from example_embeddings import with_needs
from torch import Tensor

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.scores import Scores
from fope_lab.model import Decoder, ModelConfig, exact
from fope_lab.model import attention as of_layer
from fope_lab.model.scores import attend
from fope_lab.model.seen import Documents, Seen

LENGTH, HEADS, KEY_HEADS, DIM = 11, 4, 2, 4
NAMES = (
    "cope-contextual",
    "dca",
    "path",
    "rerope",
    "self-extend",
    "sink",
    "stick-breaking",
    "xpos",
)
"""The embeddings with logits, weights or a sink of their own."""


def inputs() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    heads = (HEADS * DIM, HEADS, KEY_HEADS, KEY_HEADS)
    found = [torch.randn(1, LENGTH, heads[0], generator=generator, dtype=torch.float64)]
    for count in heads[1:]:
        drawn = torch.randn(1, count, LENGTH, DIM, generator=generator, dtype=torch.float64)
        found.append(drawn)
    return [each.requires_grad_() for each in found]


@pytest.mark.parametrize(("window", "dropout"), [(None, 0.0), (5, 0.0), (None, 0.3)])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_differences_of_results(
    name: str, window: int | None, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "QUERIES", 4)
    sizes = {"head_dim": DIM, "num_heads": HEADS, "num_kv_heads": KEY_HEADS, "train_length": 8}
    of = build_embedding(with_needs(name, base=50, window=3, group=2, chunk=4), **sizes).double()
    with torch.no_grad():
        for parameter in of.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    documents = Documents((torch.arange(LENGTH) // 7)[None])
    seen = Seen.of(LENGTH, LENGTH, documents, window)
    at = of.places(torch.arange(LENGTH))

    def mixed(hidden: Tensor, q: Tensor, k: Tensor, v: Tensor, *learned: Tensor) -> Tensor:
        torch.manual_seed(1)  # drops the same weights each time
        return attend(of.scores(q, of.streams(hidden, q, k, at), at), v, seen, dropout)

    # Parameters are changed in place, where `of` reads them.
    given = (*inputs(), *of.parameters())
    assert torch.autograd.gradcheck(mixed, given, atol=1e-6, fast_mode=True)


@pytest.mark.parametrize("steps", [False, True], ids=["rows", "table"])
def test_a_bias_learns_beside_a_sink(steps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several blocks; a sink that takes nothing leaves attention as it is."""
    monkeypatch.setattr(exact, "QUERIES", 4)
    of = build_embedding("kerple", head_dim=DIM, num_heads=HEADS, train_length=8).double()
    _, q, k, v = inputs()
    k, v = (each.detach().repeat(1, 2, 1, 1) for each in (k, v))
    at = of.places(torch.arange(LENGTH) * (1 if steps else 2), steps=steps)
    seen = Seen.of(LENGTH, LENGTH)

    def mixed(sink: Tensor, *learned: Tensor) -> Tensor:
        scores = of.scores(q, of.streams(q, q, k, at), at)
        assert (scores.table is not None) is steps
        return attend(replace(scores, sink=sink), v, seen)

    sink = torch.randn(HEADS, dtype=torch.float64, requires_grad=True)
    given = (sink, *of.parameters())
    assert torch.autograd.gradcheck(mixed, given, atol=1e-6, fast_mode=True)
    unlikely = mixed(sink.detach() - 1e3)
    torch.testing.assert_close(unlikely, attend(of.scores(q, {"k": k}, at), v, seen))


@pytest.mark.parametrize("name", NAMES)
def test_gradient_checkpointing_frees_what_attention_was_computed_from(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ModelConfig(num_layers=2, num_heads=4, head_dim=16, vocab_size=50)
    model = Decoder(config, with_needs(name), train_length=32).train()
    model.gradient_checkpointing = True
    queries = list[weakref.ref[Tensor]]()

    def noting(scores: Scores, *rest: Any) -> Tensor:
        queries.append(weakref.ref(scores.q))
        return attend(scores, *rest)

    monkeypatch.setattr(of_layer, "attend", noting)
    loss = model(torch.arange(20)[None]).logits.sum()
    assert len(queries) == 2
    assert [each() for each in queries] == [None, None]
    loss.backward()


GROWTH = """
import sys, torch
sys.path.insert(0, "benchmarks")
from embeddings import memory_growth
torch.set_num_threads(1)
print(memory_growth(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_grows_with_the_length_and_not_with_its_square() -> None:
    """What lies between a block's tensors must not split the memory that they leave."""

    def growth(length: int) -> int:
        line = [sys.executable, "-c", GROWTH, "cope-contextual", str(length)]
        return int(subprocess.run(line, check=True, capture_output=True, text=True).stdout)

    assert growth(2048) < 2.3 * growth(1024)
