"""Every shipped model size: parameters, and FLOPs and memory of a training step with estimates.

    python benchmarks/scales.py [--scales 60m 180m …] [--batch 2] [--length 512] [--json FILE]
                                [--precision bfloat16] [--gradient-checkpointing] [--rank 16]
                                [--fits 16]

- `parameters`: the body and head of the model, built on the meta device and counted as in the
  papers' names, and the ratio of the estimate to that;
- `FLOPs`: those of forward and backward, counted by `torch.utils.flop_counter` on the meta device,
  and the ratio of the estimate to that. The counter counts attention as a full square of queries
  and keys; the estimate, which `plan` uses, counts the half that a causal mask leaves;
- `memory`: the growth of peak memory in two steps with AdamW in a fresh process, if the estimate is
  at most `--fits` GiB, and the ratio of the estimate to that. On a CUDA device it is what PyTorch
  allocates, on a CPU that of the process (Linux).

With `--rank`, only low-rank adapters of the attention's projections are trained.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from fope_lab.config.atomic_files import write_atomic
from fope_lab.model import SCALES, Decoder, ModelConfig, flops_per_token, parameters
from fope_lab.model.adapter import Adapter
from fope_lab.model.lora import add_adapter
from fope_lab.model.memory import Memory, training_memory

CUDA = torch.cuda.is_available()
GIB = 2**30
WARM_UP = ModelConfig(num_layers=1, num_heads=1, head_dim=16, vocab_size=64)


def sizes(given: argparse.Namespace) -> dict[str, Any]:
    """The options that say what a step is."""
    names = ("batch", "length", "precision", "gradient_checkpointing", "rank")
    return {name: getattr(given, name) for name in names}


def adapter(given: argparse.Namespace) -> Adapter | None:
    return None if given.rank is None else Adapter(rank=given.rank)


def estimate(config: ModelConfig, given: argparse.Namespace) -> Memory:
    step = {name: value for name, value in sizes(given).items() if name != "rank"}
    return training_memory(config, **step, adapter=adapter(given))


def new_model(config: ModelConfig, given: argparse.Namespace) -> Decoder:
    model = Decoder(config, "nope", train_length=given.length)
    if (own := adapter(given)) is not None:
        add_adapter(model, own, seed=0)
    return model


def counted_parameters(config: ModelConfig) -> int:
    """Those of a model on the meta device, the input embedding not."""
    with torch.device("meta"):
        model = Decoder(config, "nope", train_length=512)
    total = sum(parameter.numel() for parameter in model.parameters())
    return total - model.embed_tokens.weight.numel()


def counted_flops(config: ModelConfig, given: argparse.Namespace) -> int:
    """Of forward and backward on the meta device, with all logits at once."""
    with torch.device("meta"):
        model = new_model(config, given)
        tokens = torch.zeros(given.batch, given.length, dtype=torch.long)
    counter = FlopCounterMode(display=False)
    with counter:
        model(tokens).logits.sum().backward()
    return int(counter.get_total_flops())


def step_twice(config: ModelConfig, given: argparse.Namespace) -> None:
    """Two training steps; the first makes the optimizer's state, the second has it."""
    device = torch.device("cuda" if CUDA else "cpu")
    with device:
        model = new_model(config, given).train()
        tokens = torch.randint(config.vocab_size, (given.batch, given.length))
    model.gradient_checkpointing = given.gradient_checkpointing
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for _ in range(2):
        narrow = given.precision == "bfloat16"
        with torch.autocast(device.type, torch.bfloat16, enabled=narrow):
            loss = model(tokens, labels=tokens).loss
        (loss / tokens.numel()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def held(line: str) -> int:
    """Return the bytes that a line of /proc/self/status states."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    [found] = (one for one in status.splitlines() if one.startswith(f"{line}:"))
    return int(found.split()[1]) * 1024


def grow(config: ModelConfig, given: argparse.Namespace) -> int:
    """How far the peak of this process, which should be a fresh one, grows in two steps."""
    step_twice(WARM_UP, given)  # what libraries hold, whatever the model
    if CUDA:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step_twice(config, given)
        return torch.cuda.max_memory_allocated() - before
    before = held("VmRSS")
    step_twice(config, given)
    return held("VmHWM") - before


def measured(scale: str, given: argparse.Namespace) -> int | None:
    """`grow` in a process of its own; None if it died, of memory that is not there."""
    line = [sys.executable, __file__, "--grow", scale]
    for name, value in sizes(given).items():
        flag = f"--{name.replace('_', '-')}"
        if value is not None:
            line += [flag] * value if isinstance(value, bool) else [flag, str(value)]
    # Freed memory goes back at once, so that the peak is that of tensors.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**18)}
    done = subprocess.run(line, check=False, capture_output=True, text=True, env=environment)
    return None if done.returncode else int(done.stdout)


def row(scale: str, given: argparse.Namespace) -> dict[str, Any]:
    """A scale's figures, estimated and counted or measured."""
    config = SCALES[scale]
    size, step, own = parameters(config), estimate(config, given), adapter(given)
    adapted = None if own is None else own.parameters(config)
    return {
        "scale": scale,
        "parameters": size.body + size.head,
        "parameters_counted": counted_parameters(config),
        "flops": given.batch
        * given.length
        * flops_per_token(config, given.length, adapted=adapted),
        "flops_counted": counted_flops(config, given),
        "memory": dataclasses.asdict(step),
        "memory_measured": measured(scale, given) if fits(step, given) else None,
    }


def fits(step: Memory, given: argparse.Namespace) -> bool:
    """Return whether a step is small enough to measure."""
    return step.peak <= given.fits * GIB


def print_row(figures: dict[str, Any]) -> None:
    """Print the line of a scale in the table."""
    memory, peak = figures["memory_measured"], figures["memory"]["peak"]
    beside = f"{memory / GIB:8.2f} GiB {peak / memory:6.2f}" if memory else f"{'–':>19}"
    print(
        f"{figures['scale']:12}",
        f"{figures['parameters_counted'] / 1e6:9,.1f}M",
        f"{figures['parameters'] / figures['parameters_counted']:6.3f}",
        f"{figures['flops_counted']:9.2e} {figures['flops'] / figures['flops_counted']:6.3f}",
        f"{beside}  {peak / GIB:8.2f} GiB",
        flush=True,
    )


def arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scales", nargs="+", default=list(SCALES), choices=SCALES)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--rank", type=int, help="train adapters of this rank, and nothing else")
    parser.add_argument("--fits", type=float, default=8, help="GiB that a step may take")
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    parser.add_argument("--grow", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Print the table, a scale at a time."""
    given = arguments()
    if given.grow:
        print(grow(SCALES[given.grow], given))
        return
    device = torch.cuda.get_device_name() if CUDA else "CPU"
    print(f"{device}, torch {torch.__version__}; {sizes(given)}")
    print(
        f"{'scale':12} {'parameters':>10} {'share':>6} {'FLOPs':>9} {'share':>6}"
        f" {'memory':>12} {'share':>6}  {'estimate':>12}"
    )
    rows = []
    for scale in given.scales:
        rows.append(row(scale, given))
        print_row(rows[-1])
    if given.json:
        content = {"device": device, **sizes(given), "scales": rows}
        write_atomic(given.json, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
