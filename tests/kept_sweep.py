"""A sweep whose stages can be put into any state, in a store that has recorded it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep, plan
from fope_lab.sweep.graph import Stage
from fope_lab.tracking.ledger import Ledger

SWEEP = """
name: kept
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: rope
    data: {task: passkey, length: 32}
    train: {tokens: 1024, batch_tokens: 256, learning_rate: 1e-2}
  passkey: {kind: passkey, from: pretrain, form: symbolic, lengths: [32], trials: 2}
grid:
  pretrain.embedding: [rope, nope]
"""
PRETRAIN = SWEEP.partition("  passkey:")[0]
"""Its training alone."""
ROPE, NOPE = "pretrain[embedding=rope,seed=0]", "pretrain[embedding=nope,seed=0]"
"""The labels of the two trainings."""


class Scene:
    """A sweep file and a store that has recorded its stages."""

    def __init__(self, folder: Path) -> None:
        self.file, self.store = folder / "kept.yaml", Store.create(folder / "store")
        self.options = ["--store", str(self.store.root)]
        self.old: list[StageFolder] = []
        self.write(SWEEP)
        self.record()

    def write(self, text: str) -> None:
        self.file.write_text(text)
        self.sweep = load_sweep(self.file)

    def record(self) -> None:
        """Record the sweep in the store, as a run does."""
        Ledger(self.store, "none").save_outline(plan(self.sweep, self.store))

    def stage(self, label: str) -> Stage:
        [stage] = [stage for stage in self.sweep.stages if stage.label == label]
        return stage

    def folder(self, label: str) -> StageFolder:
        stage = self.stage(label)
        return self.store.folder(stage.kind, stage.key)

    def request(self, label: str) -> dict[str, object]:
        stage = self.stage(label)
        asked = {"key": stage.key, "kind": stage.kind, "config": stage.config}
        return {**asked, "parents": {**stage.parents, **stage.checkpoints}}

    def save(self, label: str, *, finish: bool, weights: bytes = b"weights") -> StageFolder:
        """Let an attempt save two checkpoints, and finish the stage if asked."""
        folder = self.folder(label)
        with folder.begin("driver", self.request(label)) as attempt:
            for step in (1, 2):
                attempt.writer.log(step, {"loss": 1.0})
                attempt.writer.save_checkpoint(
                    step, lambda path: (path / "model").write_bytes(weights) and None
                )
            if finish:
                attempt.finish({})
        return folder

    def fail(self, label: str, error: str) -> StageFolder:
        """Let an attempt fail."""
        folder = self.folder(label)
        with pytest.raises(RuntimeError), folder.begin("driver", self.request(label)):
            raise RuntimeError(error)
        return folder
