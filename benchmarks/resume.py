"""Exact resume: a training that dies half-way and goes on from its checkpoint, to the bit.

    python benchmarks/resume.py [--steps 40] [--json FILE]

A small decoder with FoPE trains on random tokens: once to the end, and once until it dies, a step
after the checkpoint at half of its steps; another loop, model and optimizer go on from there. With
a CUDA device it trains on that, under bfloat16 autocast, with the deterministic kernels of PyTorch:
not all of the others add up in the same order twice. The output is the number of weights that
differ, and the largest difference. The exit code is 1 if there is any.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fope_lab.config.atomic_files import write_atomic
from fope_lab.config.options import entry_of
from fope_lab.data.mixture import Batch
from fope_lab.model import Decoder, ModelConfig
from fope_lab.stages.training import TrainSettings
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from trainers.loop import train

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
CONFIG = ModelConfig(num_layers=2, num_heads=4, head_dim=32, vocab_size=272)
ROWS, LENGTH = 8, 128
WEIGHTS = "weights.safetensors"


class DiedError(Exception):
    """Stands for the end of a process."""


def settings(steps: int) -> TrainSettings:
    """The settings of the training."""
    found: TrainSettings = entry_of(TrainSettings).read(
        {
            "tokens": steps * ROWS * LENGTH,
            "batch_tokens": ROWS * LENGTH,
            "learning_rate": 1e-3,
            "precision": "bfloat16" if CUDA else "float32",
            "checkpoint_every": steps // 2,
        }
    )
    return found


def attempt(folder: StageFolder, steps: int, dies_at: int | None = None) -> None:
    """Train from the start or the checkpoint to the end, or until step `dies_at`."""

    def batches(step: int) -> Batch:
        if step == dies_at:
            raise DiedError
        generator = torch.Generator().manual_seed(step)
        ids = torch.randint(CONFIG.vocab_size, (ROWS, LENGTH + 1), generator=generator)
        return Batch(ids[:, :-1], ids[:, 1:])

    with folder.begin("benchmark", {}) as handle:
        model = Decoder(CONFIG, "fope", train_length=LENGTH, seed=0)
        if handle.writer.resumed_from is not None:
            model.load_state_dict(load_file(handle.writer.resumed_from.path / WEIGHTS))
        result = train(
            model.to(DEVICE),
            batches,
            settings(steps),
            handle.writer,
            lambda directory, weights: save_file(dict(weights), directory / WEIGHTS),
            seed=0,
            device=DEVICE,
        )
        handle.finish(result)


def weights(folder: StageFolder) -> dict[str, Tensor]:
    """The weights that a training ended with."""
    checkpoint = folder.checkpoint()
    assert checkpoint is not None
    return load_file(checkpoint.path / WEIGHTS)


def main() -> int:
    """Train three times; print what differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    given = parser.parse_args()
    if CUDA:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what cuBLAS needs to repeat itself
        torch.use_deterministic_algorithms(True)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        whole, halves = (Store(root / part).folder("pretrain", "x") for part in ("whole", "halves"))
        attempt(whole, given.steps)
        with contextlib.suppress(DiedError):
            attempt(halves, given.steps, dies_at=given.steps // 2 + 1)
        assert not halves.is_done(), "it ended, where it should have died"
        attempt(halves, given.steps)
        expected, found = weights(whole), weights(halves)
    gaps = {key: (found[key].double() - of.double()).abs() for key, of in expected.items()}
    different = sum(int((gap > 0).sum()) for gap in gaps.values())
    figures = {
        "device": torch.cuda.get_device_name() if CUDA else "cpu",
        "weights": sum(gap.numel() for gap in gaps.values()),
        "different": different,
        "largest": max(float(gap.max()) for gap in gaps.values()),
    }
    print(
        f"{figures['device']}: {different} of {figures['weights']:,} weights differ,"
        f" by {figures['largest']:.1e} at most"
    )
    if given.json:
        write_atomic(given.json, json.dumps(figures, indent=1) + "\n")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
