"""Attention without a bias: time of the ways that there are, and memory over packed documents.

    python benchmarks/attention.py [--lengths 32 64 …] [--packed 1024 2048 …] [--json FILE]

`time`: a forward and backward pass over 2,048 tokens, 4 heads of 64, on one thread of a CPU:
PyTorch's `scaled_dot_product_attention` in milliseconds, and as multiples of it `block_attention`
and plain products with softmax in float32. Times are those of the process, medians of ratios in
alternating rounds. The rule in fope_lab/model/scores.py is read off here.

`memory`: the growth of the peak memory of a fresh process by a forward and backward pass of a
decoder of two layers over one packed sequence with documents of 1,000 tokens, and its exponent: the
slope of log(memory) over log(length). Aim: ≤ 1.1.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fope_lab.config.atomic_files import write_atomic
from fope_lab.config.processor import processor
from fope_lab.model import Decoder, ModelConfig
from fope_lab.model.block_attention import block_attention
from fope_lab.model.seen import Seen

HEADS, HEAD_DIM, TOKENS, DOCUMENT = 4, 64, 2048, 1000
ROUNDS = 9
CONFIG = ModelConfig(num_layers=2, num_heads=HEADS, head_dim=HEAD_DIM, vocab_size=272)


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention by products of all pairs, with softmax in float32."""
    length = q.shape[2]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    logits = (q @ k.mT / math.sqrt(HEAD_DIM)).masked_fill(future, -math.inf)
    return logits.softmax(dim=-1, dtype=torch.float32).to(q.dtype) @ v


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention by PyTorch's kernel."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def in_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention a block of queries at a time."""
    return block_attention(q, k, v, Seen(q.shape[2], k.shape[2]))


WAYS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "fused": fused,
    "blocks": in_blocks,
    "plain": plain,
}


def times(length: int, dtype: torch.dtype) -> dict[str, float]:
    """Milliseconds of the fused kernel, and the other ways' multiples of it."""
    shape = (max(TOKENS // length, 1), length, HEADS, HEAD_DIM)
    q, k, v, gradient = (torch.randn(shape).to(dtype).transpose(1, 2) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad_()
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way, attend in WAYS.items():
            started = time.process_time()
            torch.autograd.grad(attend(q, k, v), (q, k, v), gradient)
            seconds[way].append(time.process_time() - started)
    ratios = {
        way: statistics.median(a / b for a, b in zip(of, seconds["fused"], strict=True))
        for way, of in seconds.items()
    }
    return {**ratios, "fused": 1000 * statistics.median(seconds["fused"])}


def peak_growth(length: int) -> int:
    """Bytes by which a pass over a packed sequence of this length lifts the process's peak."""
    model = Decoder(CONFIG, "rope", train_length=length)
    ids = torch.zeros(1, length, dtype=torch.long)
    documents = (torch.arange(length) // DOCUMENT)[None]
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak is that from now on
    before = held("VmRSS")
    loss = model(ids, labels=ids, documents=documents).loss
    assert loss is not None
    loss.backward()
    return held("VmHWM") - before


def held(entry: str) -> int:
    """Bytes of memory by an entry of the process's status: VmRSS now, VmHWM at the peak."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    [line] = (line for line in status.splitlines() if line.startswith(f"{entry}:"))
    return 1024 * int(line.split()[1])


def memory(lengths: list[int]) -> dict[int, int]:
    """The peak growth at each length, each in a process of its own."""
    return {
        length: int(
            subprocess.run(
                [sys.executable, __file__, "--grow", str(length)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
        )
        for length in lengths
    }


def exponent(by_length: Mapping[int, float]) -> float:
    """The slope of a line through log(value) over log(length), by least squares."""
    x = [math.log(length) for length in by_length]
    y = [math.log(value) for value in by_length.values()]
    return statistics.linear_regression(x, y).slope


def arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    lengths = [32, 64, 128, 256, 512, 1024, 2048]
    packed = [2**power for power in range(10, 17)]
    parser.add_argument("--lengths", nargs="*", type=int, default=lengths)
    parser.add_argument("--packed", nargs="*", type=int, default=packed)
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    parser.add_argument("--grow", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Print a line for each length."""
    given = arguments()
    torch.set_num_threads(1)
    if given.grow:
        print(peak_growth(given.grow))
        return
    device = f"{processor()}, one thread, torch {torch.__version__}"
    print(device)
    figures: dict[str, Any] = {"device": device, "time": [], "memory": []}
    for dtype in (torch.bfloat16, torch.float32):
        for length in given.lengths:
            found = times(length, dtype)
            name = str(dtype).removeprefix("torch.")
            figures["time"].append({"dtype": name, "length": length, **found})
            print(
                f"  {name:8} {length:6,} tokens: fused {found['fused']:6.1f} ms,"
                f" blocks {found['blocks']:.2f} ×, plain {found['plain']:.2f} ×",
                flush=True,
            )
    grown = memory(given.packed)
    for length, peak in grown.items():
        figures["memory"].append({"length": length, "bytes": peak})
        print(f"  packed {length:6,} tokens: {peak / 2**20:8.1f} MiB")
    if len(grown) > 1:
        figures["exponent"] = exponent(grown)
        print(f"  exponent {figures['exponent']:.3f}")
    if given.json:
        write_atomic(given.json, json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
