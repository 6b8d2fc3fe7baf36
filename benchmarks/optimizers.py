"""Muon beside AdamW: tokens per second, the time of an update, and what the optimizer keeps.

    python benchmarks/optimizers.py

Two models of bytes are trained on random tokens, by each optimizer in a fresh process, alternately.
The update is the optimizer's step alone; memory is the process's peak.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import torch

from fope_lab.model import Decoder, ModelConfig
from fope_lab.stages.training import TrainSettings
from trainers.optimizer import build_optimizer, kept_memory

MODELS: dict[str, dict[str, Any]] = {
    "2 layers of 128": {"num_layers": 2, "num_heads": 4, "head_dim": 32},
    "6 layers of 384": {"num_layers": 6, "num_heads": 6, "head_dim": 64},
}
BATCH, LENGTH, STEPS, RUNS = 32, 64, 12, 3


def stage(model: str, optimizer: Literal["adamw", "muon"]) -> None:
    """Train in this process, on one thread, and print what was measured."""
    torch.set_num_threads(1)
    decoder = Decoder(ModelConfig(**MODELS[model], vocab_size=272), "rope", train_length=LENGTH)
    settings = TrainSettings(tokens=1, batch_tokens=1, learning_rate=1e-3, optimizer=optimizer)
    built = build_optimizer(decoder, settings)
    steps, updates = [], []
    with kept_memory(torch.device("cpu")):
        for _ in range(STEPS):
            ids = torch.randint(272, (BATCH, LENGTH))
            start = time.perf_counter()
            decoder(ids, labels=ids).loss.backward()
            before = time.perf_counter()
            built.step()
            built.zero_grad(set_to_none=True)
            end = time.perf_counter()
            steps.append(end - start)
            updates.append(end - before)
    kept = sum(t.nbytes for state in built.state.values() for t in state.values())
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    found = {
        "tokens_per_second": BATCH * LENGTH / statistics.median(steps[2:]),
        "update": 1000 * statistics.median(updates[2:]),
        "kept": kept / 1e6,
        "peak": int(peak) / 1024,
    }
    print(json.dumps(found))


def measure(model: str, optimizer: str) -> dict[str, Any]:
    """What `stage` measures in a fresh process."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    call = f"from optimizers import stage\nstage({model!r}, {optimizer!r})"
    done = subprocess.run([sys.executable, "-c", code + call], check=True, capture_output=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print a row for each model and optimizer."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    heads = f"{'tokens/s':>9} {'of AdamW':>8} {'update':>10} {'kept':>8} {'peak':>8}"
    print(f"{'model':16} {'optimizer':9} {heads}")
    for model in MODELS:
        runs: dict[str, list[dict[str, Any]]] = {"adamw": [], "muon": []}
        for _ in range(RUNS):
            for optimizer, found in runs.items():
                found.append(measure(model, optimizer))
        medians = {
            optimizer: {key: statistics.median(run[key] for run in found) for key in found[0]}
            for optimizer, found in runs.items()
        }
        for optimizer, of in medians.items():
            ratio = of["tokens_per_second"] / medians["adamw"]["tokens_per_second"]
            print(
                f"{model:16} {optimizer:9} {of['tokens_per_second']:9,.0f} {ratio:7.2f}×"
                f" {of['update']:7.1f} ms {of['kept']:5.1f} MB {of['peak']:5.0f} MB"
            )


if __name__ == "__main__":
    main()
