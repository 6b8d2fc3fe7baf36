"""Memory and time of evaluating perplexity at long contexts; memory grows with the length alone.

    python benchmarks/long_context.py [--embeddings rope fope alibi] [--lengths 1024 …] [--json F]

A small decoder (2 layers, 2 heads × 32, vocabulary 8,192) reads one window of N tokens, each in a
fresh process on one thread:

- `memory`: the growth of the process's peak beyond that for a window of 64 tokens (Linux; on a CUDA
  device, what PyTorch allocates);
- `logits`: the memory that the logits alone would take if they were held completely, in float32;
- `seconds`: the time for the window; attention itself is quadratic.

`exponent` is p in memory ∝ lengthᵖ, fitted by least squares to the lengths from 8,192 on: at
shorter lengths, the part that does not grow at all (a chunk of logits) dominates.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from fope_lab.config.atomic_files import write_atomic
from fope_lab.evaluation.perplexity.losses import perplexity
from fope_lab.model import Decoder, ModelConfig

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
CONFIG = ModelConfig(num_layers=2, num_heads=2, head_dim=32, vocab_size=8192)
TRAIN_LENGTH = 512
FIRST = 64
FITTED_FROM = 8192
MIB = 2**20


def peak_memory() -> int:
    """The most memory so far, in bytes: what PyTorch allocated on CUDA, the process's on a CPU."""
    if CUDA:
        return torch.cuda.max_memory_allocated()
    # Not getrusage, whose peak begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    [line] = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def measure(embedding: str, length: int) -> dict[str, float]:
    """Growth of the peak in bytes, and seconds, in this process, which should be a fresh one."""
    model = Decoder(CONFIG, embedding, train_length=TRAIN_LENGTH).to(DEVICE).eval()
    tokens = np.random.default_rng(0).integers(0, CONFIG.vocab_size, length + 1)
    perplexity(model, tokens[: FIRST + 1], FIRST)  # what is allocated once and for all
    before, start = peak_memory(), time.perf_counter()
    perplexity(model, tokens, length)
    return {"memory": peak_memory() - before, "seconds": time.perf_counter() - start}


def measured(embedding: str, length: int) -> dict[str, float]:
    """`measure` in a process of its own."""
    line = [sys.executable, __file__, "--measure", embedding, str(length)]
    output = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(output))


def exponent(memory: dict[int, float]) -> float:
    """p of memory ∝ lengthᵖ, over the lengths that are long enough."""
    fitted = {length: value for length, value in memory.items() if length >= FITTED_FROM}
    if len(fitted) < 2:
        return float("nan")
    return float(np.polyfit(np.log(list(fitted)), np.log(list(fitted.values())), 1)[0])


def arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--embeddings", nargs="+", default=["rope", "fope", "alibi"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[2**n for n in range(10, 17)])
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Print a line for each length, and the exponent of each embedding."""
    given = arguments()
    torch.set_num_threads(1)
    if given.measure:
        print(json.dumps(measure(given.measure[0], int(given.measure[1]))))
        return
    device = torch.cuda.get_device_name() if CUDA else "CPU, one thread"
    print(f"{device}, float32, torch {torch.__version__}")
    print(f"{'embedding':10} {'length':>8} {'memory/MiB':>12} {'logits/MiB':>12} {'seconds':>10}")
    figures = {}
    for embedding in given.embeddings:
        rows = {}
        for length in given.lengths:
            rows[length] = row = measured(embedding, length)
            logits = 4 * length * CONFIG.vocab_size / MIB
            print(
                f"{embedding:10} {length:8} {row['memory'] / MIB:12.1f} {logits:12.1f}"
                f" {row['seconds']:10.2f}",
                flush=True,
            )
        found = exponent({length: row["memory"] for length, row in rows.items()})
        print(f"{embedding:10} memory ∝ length^{found:.2f} from {FITTED_FROM} tokens on")
        figures[embedding] = {"exponent": found, "lengths": rows}
    if given.json:
        content = {"device": device, "embeddings": figures}
        write_atomic(given.json, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
