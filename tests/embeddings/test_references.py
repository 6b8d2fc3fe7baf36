"""Methods that see hidden states, or that weigh in their own way, against their formulas in
float64, written out for each pair of tokens."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model.scores import attend
from fope_lab.model.seen import Documents, Seen

HEADS, KEY_HEADS, DIM, LENGTH, TRAINED = 4, 2, 8, 150, 40
WIDTH = HEADS * DIM
Logits = Callable[[PositionEmbedding, Tensor, Tensor, Tensor], Tensor]
"""Logits (heads, length, length) of one sequence from its hidden states, queries and keys, of as
many heads."""


def drawn(*size: int, seed: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def embedding_of(spec: Any) -> PositionEmbedding:
    made = build_embedding(
        spec, head_dim=DIM, num_heads=HEADS, num_kv_heads=KEY_HEADS, train_length=TRAINED
    ).double()
    with torch.no_grad():
        for number, parameter in enumerate(made.parameters()):
            parameter.copy_(drawn(*parameter.shape, seed=number + 10) / 2)
    return made


def dot(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / math.sqrt(DIM)


def turned(x: Tensor, positions: Tensor, base: float = 10_000.0) -> Tensor:
    """Rotated by complex arithmetic."""
    half = x.shape[-1] // 2
    omega = base ** -(torch.arange(half, dtype=torch.float64) * 2 / x.shape[-1])
    turn = torch.polar(torch.ones(()).double(), positions.double()[:, None] * omega)
    found = torch.complex(x[..., :half], x[..., half:]) * turn
    return torch.cat((found.real, found.imag), dim=-1)


def pairs() -> list[tuple[int, int]]:
    return [(i, j) for i in range(LENGTH) for j in range(i + 1)]


def fox(of: PositionEmbedding, hidden: Tensor, q: Tensor, k: Tensor) -> Tensor:
    gates = (hidden @ of.gate.mT + of.gate_bias).sigmoid().log()  # (length, heads)
    logits = dot(q, k)
    for i, j in pairs():
        logits[:, i, j] += gates[j + 1 : i + 1].sum(0)
    return logits


def path(of: PositionEmbedding, hidden: Tensor, q: Tensor, k: Tensor) -> Tensor:
    axes = (hidden @ of.axis.mT).view(LENGTH, KEY_HEADS, DIM)
    axes = axes / axes.norm(dim=-1, keepdim=True)
    amounts = 2 * (hidden @ of.amount.mT + of.amount_bias).sigmoid()
    logits = torch.zeros(HEADS, LENGTH, LENGTH, dtype=torch.float64)
    for head in range(HEADS):
        own = head // (HEADS // KEY_HEADS)
        for i in range(LENGTH):
            x = q[head, i]
            for j in range(i, -1, -1):
                logits[head, i, j] = k[head, j] @ x / math.sqrt(DIM)
                x = x - amounts[j, own] * (axes[j, own] @ x) * axes[j, own]
    return logits


def rope_at(query: Callable[[int, int], int], key: Callable[[int, int], int]) -> Logits:
    """RoPE at positions that each pair of tokens has for itself."""

    def logits(of: PositionEmbedding, hidden: Tensor, q: Tensor, k: Tensor) -> Tensor:
        found = torch.zeros(HEADS, LENGTH, LENGTH, dtype=torch.float64)
        places = torch.arange(2 * LENGTH)
        # Each token, turned to each position.
        all_q, all_k = (
            [turned(x[:, i].unsqueeze(1).expand(-1, 2 * LENGTH, -1), places) for i in range(LENGTH)]
            for x in (q, k)
        )
        for i, j in pairs():
            found[:, i, j] = (all_q[i][:, query(i, j)] * all_k[j][:, key(i, j)]).sum(-1)
        return found / math.sqrt(DIM)

    return logits


def xpos(of: PositionEmbedding, hidden: Tensor, q: Tensor, k: Tensor) -> Tensor:
    place = torch.arange(LENGTH)
    zeta = (2 * torch.arange(DIM // 2, dtype=torch.float64) / DIM + 0.4) / 1.4
    grown = zeta.repeat(2) ** (place[:, None] / 512)
    return dot(turned(q, place) * grown, turned(k, place) / grown)


def partial(of: PositionEmbedding, hidden: Tensor, q: Tensor, k: Tensor) -> Tensor:
    place, half = torch.arange(LENGTH), DIM // 2
    q, k = (torch.cat((turned(x[..., :half], place), x[..., half:]), dim=-1) for x in (q, k))
    return dot(q, k)


OMEGAS = 10_000.0 ** -(torch.arange(DIM // 2, dtype=torch.float64) * 2 / DIM)


def by_angles(angles: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Logits of pairs that are turned by angles (key heads, length, pairs)."""
    turn = torch.polar(torch.ones(()).double(), angles.repeat_interleave(HEADS // KEY_HEADS, dim=0))
    q, k = (torch.complex(*x.chunk(2, dim=-1)) * turn for x in (q, k))
    return (q[:, :, None] * k[:, None].conj()).real.sum(-1) / math.sqrt(DIM)


def selective(of: PositionEmbedding, hidden: Tensor, q: Tensor, k: Tensor) -> Tensor:
    angles = torch.zeros(KEY_HEADS, LENGTH, DIM // 2, dtype=torch.float64)
    total = torch.zeros(KEY_HEADS * DIM // 2, dtype=torch.float64)
    for token in range(LENGTH):
        x = hidden[token] / hidden[token].norm()
        total = total + of.turn @ (of.narrow @ x)
        angles[:, token] = total.view(KEY_HEADS, DIM // 2) * OMEGAS
    return by_angles(angles, q, k)


def replaced(of: PositionEmbedding, hidden: Tensor, q: Tensor, k: Tensor) -> Tensor:
    gate = hidden @ of.gate.mT
    positions = (gate * gate.sigmoid() * (hidden @ of.content.mT)) @ of.place.mT
    return by_angles(positions.mT[..., None] * OMEGAS, q, k)


def sandwiched(of: PositionEmbedding, hidden: Tensor, q: Tensor, k: Tensor) -> Tensor:
    logits = dot(q, k)
    for i, j in pairs():
        total = sum(math.cos((i - j) * 10_000 ** (-2 * wave / 128)) for wave in range(64))
        for head in range(HEADS):
            logits[head, i, j] += total * HEADS / (8 * (head + 1))
    return logits


WINDOW, GROUP, CHUNK = 13, 4, 30
LOGITS: dict[str, tuple[Any, Logits]] = {
    "fox": ("fox", fox),
    "path": ("path", path),
    "selective-rope": ("selective-rope", selective),
    "repo": ("repo", replaced),
    "sandwich": ("sandwich", sandwiched),
    "xpos": ("xpos", xpos),
    "partial": ({"type": "partial", "fraction": 0.5}, partial),
    "self-extend": (
        {"type": "self-extend", "window": WINDOW, "group": GROUP},
        rope_at(
            lambda i, j: i if i - j < WINDOW else i // GROUP + WINDOW - WINDOW // GROUP,
            lambda i, j: j if i - j < WINDOW else j // GROUP,
        ),
    ),
    "rerope": (
        {"type": "rerope", "window": WINDOW},
        rope_at(lambda i, j: min(i - j, WINDOW), lambda i, j: 0),
    ),
    "dca": (
        {"type": "dca", "chunk": CHUNK},
        rope_at(
            lambda i, j: {
                0: i % CHUNK,
                1: min(i % CHUNK + CHUNK, TRAINED - 1),
            }.get(i // CHUNK - j // CHUNK, TRAINED - 1),
            lambda i, j: j % CHUNK,
        ),
    ),
}


def softmax(logits: Tensor, seen: Tensor) -> Tensor:
    return logits.masked_fill(~seen, -math.inf).softmax(dim=-1)


def sunk(of: PositionEmbedding) -> Callable[[Tensor, Tensor], Tensor]:
    def weights(logits: Tensor, seen: Tensor) -> Tensor:
        e = logits.exp() * seen
        return e / (e.sum(-1, keepdim=True) + of.sink.exp()[:, None, None])

    return weights


def sticks(of: PositionEmbedding) -> Callable[[Tensor, Tensor], Tensor]:
    def weights(logits: Tensor, seen: Tensor) -> Tensor:
        beta, found = logits.sigmoid() * seen, torch.zeros_like(logits)
        for i in range(LENGTH):
            left = torch.ones(HEADS, dtype=torch.float64)
            for j in range(i - 1, -1, -1):
                found[:, i, j] = beta[:, i, j] * left
                left = left * (1 - beta[:, i, j])
        return found

    return weights


def counted(q: Tensor, of: PositionEmbedding) -> Callable[[Tensor, Tensor], Tensor]:
    def weights(logits: Tensor, seen: Tensor) -> Tensor:
        gates, most = logits.sigmoid() * seen, of.by_count.shape[0] - 1
        added = torch.zeros_like(logits)
        for i, j in pairs():
            place = gates[:, i, j : i + 1].sum(-1).clamp(max=most)
            low, share = place.long(), (place % 1)[:, None]
            after = of.by_count[(low + 1).clamp(max=most)]
            vector = of.by_count[low] * (1 - share) + after * share
            added[:, i, j] = (q[:, i] * vector).sum(-1)
        return softmax(logits + added, seen)

    return weights


def states() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states, queries, keys and values of one sequence."""
    return (
        drawn(1, LENGTH, WIDTH, seed=1),
        drawn(1, HEADS, LENGTH, DIM, seed=2),
        drawn(1, KEY_HEADS, LENGTH, DIM, seed=3),
        drawn(1, KEY_HEADS, LENGTH, DIM, seed=4),
    )


def computed(of: PositionEmbedding, seen: Seen) -> Tensor:
    hidden, q, k, v = states()
    at = of.places(torch.arange(LENGTH))
    kept = of.streams(hidden, q, k, at)
    return attend(of.scores(q, kept, at), v, seen)


@functools.cache
@torch.no_grad()
def formula(name: str) -> Tensor:
    """The logits of a method, which no mask changes."""
    spec, of_pairs = LOGITS.get(name, (name, None))
    hidden, q, k, _ = states()
    k = k[0].repeat_interleave(HEADS // KEY_HEADS, dim=0)
    if name == "sink":
        q, k = (turned(x, torch.arange(LENGTH)) for x in (q, k))
    return dot(q[0], k) if of_pairs is None else of_pairs(embedding_of(spec), hidden[0], q[0], k)


MASKS = {"causal": (None, None), "window": (20, None), "packed": (None, 37), "both": (9, 41)}


@torch.no_grad()
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", [*LOGITS, "sink", "stick-breaking", "cope-contextual"])
def test_attention_is_that_of_the_formula(name: str, mask: str) -> None:
    window, document = MASKS[mask]
    place = torch.arange(LENGTH)
    seen = place[:, None] >= place
    if window is not None:
        seen = seen & (place[:, None] - place < window)
    documents = None
    if document is not None:
        numbers = place // document
        documents = Documents(numbers[None])
        seen = seen & (numbers[:, None] == numbers)
    of = embedding_of(LOGITS.get(name, (name, None))[0])
    _, q, _, v = states()
    v = v[0].repeat_interleave(HEADS // KEY_HEADS, dim=0)
    weigh = {
        "sink": lambda: sunk(of),
        "stick-breaking": lambda: sticks(of),
        "cope-contextual": lambda: counted(q[0], of),
    }.get(name, lambda: softmax)()
    expected = weigh(formula(name), seen) @ v
    found = computed(of, Seen.of(LENGTH, LENGTH, documents, window))[0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)
