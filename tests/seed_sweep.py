"""A sweep that adds seeds: one claim is decided at the first look, and the other one never is."""

from __future__ import annotations

from fope_lab.store import Store
from fope_lab.sweep import Sweep

SEED_SWEEP = """
name: seeds
seeds: {first: 3, at_most: 5, until: claims}
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 1, head_dim: 16, intermediate_size: 32}
    data: {corpus: python-docs, length: 32}
    train: {tokens: 3200, batch_tokens: 320, learning_rate: 1e-7}
  perplexity: {kind: perplexity, from: pretrain, corpus: python-docs, lengths: [32], tokens: 320}
grid: {pretrain.embedding: [rope, nope], pretrain.train.learning_rate: [1e-7, 3e-2]}
exclude: [{pretrain.embedding: nope, pretrain.train.learning_rate: 3e-2}]
report:
  claims:
    - "perplexity@32 where embedding=rope: 1e-7 > 3e-2"
    - "perplexity@32 where learning_rate=1e-7: rope ~ nope within 0.0000001%"
"""
"""The models that learn nothing are far from the one that learns. Among themselves they are
neither equal within so little nor different."""
SEEDS = {
    ("rope", 1e-7): [0, 1, 2, 3, 4],
    ("nope", 1e-7): [0, 1, 2, 3, 4],
    ("rope", 3e-2): [0, 1, 2],
}
"""The seeds that the claims have trained, by embedding and learning rate."""


def trained_seeds(sweep: Sweep, store: Store) -> dict[tuple[str | None, float], list[int | None]]:
    """The seeds of the trainings that were begun, by embedding and learning rate."""
    found: dict[tuple[str | None, float], list[int | None]] = {}
    for stage in sweep.by_section["pretrain"]:
        if store.folder(stage.kind, stage.key).attempts.newest() is not None:
            place = stage.embedding, stage.axes["pretrain.train.learning_rate"]
            found.setdefault(place, []).append(stage.seed)
    return found
