"""A pretraining of a small decoder as a stage in a store, interrupted wherever a test wants."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file
from said import TIMINGS, said
from sections import read_section
from torch import Tensor

from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.mixture import Batch, TrainingData
from fope_lab.data.packing import write_packed
from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.model import ModelConfig
from fope_lab.stages.training import Pretrain
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.store.writer import RunWriter
from trainers.stage import run

BYTES = load_tokenizer("byte")
SIZES = ModelConfig(
    num_layers=2, num_heads=2, head_dim=8, intermediate_size=16, vocab_size=BYTES.vocabulary_size
)
LENGTH, ROWS = 16, 4
TEXT = "The quick brown fox jumps over the lazy dog, and the dog looks on.\n\n"


class DiedError(Exception):
    """Stands for a process that dies."""


def prepare(root: Path) -> dict[str, Path]:
    """Prepared data of a text and of its held-out part, by role."""
    (root / "text.txt").write_text("".join(TEXT.replace("dog", f"dog {i}") for i in range(60)))
    corpus = parse_corpus({"files": str(root / "text.txt")}, root)
    roles = {"data.0": "train", "validation.0": "validation"}
    for role, split in roles.items():
        (root / role).mkdir()
        write_packed(root / role, corpus, BYTES, split)
    return {role: root / role for role in roles}


def pretraining(steps: int, **changes: Any) -> Pretrain:
    """A pretraining on text and passkeys; `changes` are of its settings, and its embedding."""
    embedding = changes.pop("embedding", "rope")
    settings = {
        "tokens": steps * ROWS * LENGTH,
        "batch_tokens": ROWS * LENGTH,
        "learning_rate": 3e-2,
        "log_every": 1,
        "checkpoint_every": 2,
    }
    mix = [{"corpus": {"files": __file__}}, {"task": "passkey", "digits": 3, "weight": 0.4}]
    stage = read_section(
        Pretrain,
        {
            "kind": "pretrain",
            "model": "tiny",
            "embedding": embedding,
            "data": {"length": LENGTH, "mix": mix},
            "train": settings | changes,
        },
    )
    return dataclasses.replace(stage, model=SIZES)  # as the plan resolves it


@dataclass
class RealStage:
    """A stage of prepared data in a store of its own."""

    root: Path
    stage: Pretrain
    data: dict[str, Path]

    @property
    def folder(self) -> StageFolder:
        """The stage's folder in the store."""
        return Store(self.root).folder("pretrain", "real")

    def attempt(self, finish: bool = True) -> dict[str, Any]:
        """One attempt, from the last checkpoint on: what result.json says, or would say."""
        with self.folder.begin("test", {}) as attempt:
            result = self.train(attempt.writer)
            if finish:
                attempt.finish(result)
        return said(result)

    def train(self, writer: RunWriter) -> dict[str, Any]:
        """What the stage's function does within an attempt."""
        return run(self.stage, writer, self.data)

    def interrupted_at(self, step: int) -> None:
        """An attempt that dies before update number `step`, if it comes to it."""
        original = TrainingData.batch

        def dying(data: TrainingData, index: int) -> Batch:
            # The held-out data are batches of the same class.
            if index == step and data.sources[1:]:
                raise DiedError
            return original(data, index)

        with patch.object(TrainingData, "batch", dying), contextlib.suppress(DiedError):
            self.attempt(finish=False)

    def weights(self) -> dict[str, Tensor]:
        """The weights in the stage's checkpoint."""
        checkpoint = self.folder.checkpoint()
        return load_file(checkpoint.path / "model.safetensors")

    def outcome(self) -> tuple[list[tuple[int, dict[str, float]]], dict[str, Any]]:
        """All rows and the result of the finished stage, without their timings."""
        result = said(self.folder.result())
        rows = [(row.step, dict(row.values)) for row in self.folder.rows()]
        for values in [result, *(values for _, values in rows)]:
            for name in TIMINGS:
                values.pop(name, None)
        return rows, result


def assert_equal(found: RealStage, expected: RealStage) -> None:
    """The same rows, results and weights, to the bit."""
    assert found.outcome() == expected.outcome()
    ours, theirs = found.weights(), expected.weights()
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
