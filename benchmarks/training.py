"""Tokens per second of the training loop, Hugging Face's Trainer and a bare loop.

    python benchmarks/training.py [--shapes mini 20m] [--precisions float32] [--compile]
                                  [--rounds 7] [--json FILE]

The contestants train the same shape of Llama from the same weights on the same tokens, with the
same fused AdamW, clipping and batch, and save nothing:

- `ours`: trainers/loop.py, which logs every tenth step; `fope` is the same with the embedding fope
  in place of rope, if it is asked for;
- `hugging face`: transformers' Trainer with LlamaForCausalLM, which also logs every tenth step;
- `bare`: fope-lab's decoder in a short loop as in nanoGPT, with the loss of all logits at once; by
  default on a CPU only, since three do not fit a GPU at 1.2b.

Each trains in float32 and under bfloat16 autocast, in a process of its own; all take turns of a few
steps, so that other load affects all of them. Figures are medians over the rounds after a warm-up
round, which all begin together. Ratios are those of speeds in the same round, with the smallest and
the largest in brackets: to Hugging Face in the same precision, to Hugging Face and to itself in
float32, and to `ours` in the same precision. On a CPU, training uses one thread. With a CUDA
device, it uses bfloat16 at 60m and 1.2b, `MFU` is the share of the device's peak, with FLOPs as in
fope_lab.model.config.flops_per_token, and `GiB` what PyTorch allocated at most.
Aims on a CPU: in bfloat16 ≥ 1.2 × Hugging Face in bfloat16 and ≥ 2.5 × its float32 at mini and 20m,
and ≥ 1.3 × its own float32 at the quickstart's shape. On an H100: ≥ 1.5 × Hugging Face at 60m,
≥ 45 % MFU at 1.2b (with --rows 32), and fope ≥ 0.97 × ours.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from contestants import CONTESTANTS, CUDA, SHAPES, Shape, Turns, Way

from fope_lab.config.atomic_files import write_atomic
from fope_lab.config.devices import GIB, recorded_device
from fope_lab.config.processor import processor
from fope_lab.model.config import flops_per_token, parameters

CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
PRECISIONS = ("float32", "bfloat16")


def take_part(given: argparse.Namespace) -> None:
    """Run a contestant in its own process."""
    shape = shape_of(given, given.shapes[0])
    generator = torch.Generator().manual_seed(0)
    size = (64 * shape.rows, shape.length + 1)
    tokens = torch.randint(shape.config.vocab_size, size, generator=generator)
    turns = Turns(shape.turn, given.rounds + 1, CLOCKS[given.clock])
    way = Way(given.precisions[0], bool(given.compile))
    CONTESTANTS[given.take_part](shape, tokens, turns, way)


def shape_of(given: argparse.Namespace, name: str) -> Shape:
    """The shape of that name, with the rows and the steps of a turn that were asked for."""
    shape = SHAPES[name]
    return dataclasses.replace(shape, rows=given.rows or shape.rows, turn=given.steps or shape.turn)


Entry = tuple[str, str]
"""A contestant and its precision."""
Row = dict[str, Any]
"""The figures of an entry."""


class Turn(NamedTuple):
    """The seconds of a turn, and the bytes of a GPU's memory that were taken at most so far."""

    seconds: float
    memory: int


Taken = Mapping[Entry, list[Turn]]
"""The turns, by entry."""


def compete(given: argparse.Namespace, shape: str, compiled: bool) -> Taken:
    """The turns by contestant and precision; the first round does not count."""
    options = ["--shapes", shape, "--rounds", str(given.rounds)]
    for name in ("rows", "steps"):
        wanted = getattr(given, name)
        options += [] if wanted is None else [f"--{name}", str(wanted)]
    options += ["--clock", given.clock, "--compile" if compiled else "--no-compile"]
    processes = {
        (name, precision): subprocess.Popen(
            [sys.executable, __file__, "--take-part", name, "--precisions", precision, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in given.contestants
        for precision in given.precisions
    }
    turns: dict[Entry, list[Turn]] = {entry: [] for entry in processes}
    for process in processes.values():  # all at once: each compiles in its first turn
        begin_turn(process)
    for number in range(given.rounds + 1):
        for entry, process in processes.items():
            if entry not in turns:
                continue
            if number > 0:
                begin_turn(process)
            turn = end_turn(process)
            if turn is None:  # it said why on stderr; the others go on
                del turns[entry]
            else:
                turns[entry].append(turn)
    for process in processes.values():
        process.communicate()
    return {entry: of[1:] for entry, of in turns.items()}


def begin_turn(process: subprocess.Popen[str]) -> None:
    """Let a contestant take a turn, if its process has not ended."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write("\n")
        process.stdin.flush()


def end_turn(process: subprocess.Popen[str]) -> Turn | None:
    """Wait for the end of a contestant's turn; None if its process has ended."""
    assert process.stdout is not None
    answer = process.stdout.readline().split()
    return Turn(float(answer[0]), int(answer[1])) if answer else None


def ratios(taken: Taken, entry: Entry) -> dict[str, list[float]]:
    """How many times as fast an entry is as others, in each round, by what it is compared with."""
    contestant, precision = entry
    others = {
        "of_hugging_face": ("hugging face", precision),
        "of_hugging_face_in_float32": ("hugging face", "float32"),
        "of_itself_in_float32": (contestant, "float32"),
        "of_ours": ("ours", precision),
    }
    return {
        name: [
            theirs.seconds / own.seconds
            for theirs, own in zip(taken[other], taken[entry], strict=True)
        ]
        for name, other in others.items()
        if other in taken
    }


def utilisation(shape: Shape, precision: str, tokens_per_second: float) -> float | None:
    """Return the share of the device's peak in that precision, if the peak is known."""
    device = recorded_device(torch.cuda.get_device_name()) if CUDA else None
    if device is None:
        return None
    flops = flops_per_token(shape.config, shape.length)
    return tokens_per_second * flops / device.peak[precision]


def arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    shapes = ["60m", "1.2b"] if CUDA else ["mini", "20m", "quickstart"]
    precisions = ["bfloat16"] if CUDA else list(PRECISIONS)
    parser.add_argument("--shapes", nargs="+", default=shapes, choices=SHAPES)
    parser.add_argument("--precisions", nargs="+", default=precisions, choices=PRECISIONS)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="default: both")
    parser.add_argument("--steps", type=int, help="of a turn, in place of the shape's own")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, help="of a batch, in place of the shape's own")
    contestants = ["ours", "hugging face", *([] if CUDA else ["bare"])]
    parser.add_argument("--contestants", nargs="+", default=contestants, choices=CONTESTANTS)
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="cpu: on a busy machine")
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    parser.add_argument("--take-part", choices=CONTESTANTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def row_of(given: argparse.Namespace, name: str, compiled: bool, entry: Entry, of: Taken) -> Row:
    """The figures of an entry, from the turns of all."""
    shape = shape_of(given, name)
    seconds = statistics.median(turn.seconds for turn in of[entry])
    rate = shape.turn * shape.batch_tokens / seconds
    found = ratios(of, entry)
    return {
        "shape": name,
        "rows": shape.rows,
        "compile": compiled,
        "contestant": entry[0],
        "precision": entry[1],
        "tokens_per_second": rate,
        **{to: statistics.median(each) for to, each in found.items()},
        "ratios": found,
        "mfu": utilisation(shape, entry[1], rate),
        "peak_memory": of[entry][-1].memory if CUDA else None,
    }


RATIOS: Mapping[str, str] = {
    "of_hugging_face": "× Hugging Face",
    "of_hugging_face_in_float32": "× its float32",
    "of_itself_in_float32": "× own float32",
    "of_ours": "× ours",
}
"""The columns of ratios."""
WIDTH = 22


def line_of(row: Row) -> str:
    """A row of figures as a line of the table."""
    columns = " ".join(_column(row["ratios"].get(name)) for name in RATIOS)
    share = "" if row["mfu"] is None else f"  MFU {row['mfu']:.1%}"
    memory = "" if row["peak_memory"] is None else f"  {row['peak_memory'] / GIB:.1f} GiB"
    how = "compiled" if row["compile"] else "eager"
    start = f"  {how:8} {row['contestant']:12} {row['precision']:8} {row['tokens_per_second']:9.0f}"
    return f"{start} {columns}{share}{memory}".rstrip()


def _column(ratios: list[float] | None) -> str:
    """The median, the smallest and the largest; empty if there is nothing to compare with."""
    if ratios is None:
        return " " * WIDTH
    text = f"{statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]"
    return f"{text:>{WIDTH}}"


def main() -> int:
    """Print a line for each shape, way and contestant; return 1 if a contestant failed."""
    given = arguments()
    torch.set_num_threads(1)
    if given.take_part:
        take_part(given)
        return 0
    kind = torch.cuda.get_device_name() if CUDA else f"{processor()}, one thread"
    device = f"{kind}, torch {torch.__version__}, {given.clock} time"
    print(device)
    figures: list[Row] = []
    ways = (False, True) if given.compile is None else (given.compile,)
    for name in given.shapes:
        shape = shape_of(given, name)
        total = parameters(shape.config).total / 1e6
        print(f"{name}: {total:.1f}M parameters, batch {shape.rows} × {shape.length} tokens")
        heads = " ".join(f"{head:>{WIDTH}}" for head in RATIOS.values())
        print(f"  {'':30} {'tokens/s':>9} {heads}")
        for compiled in ways:
            taken = compete(given, name, compiled)
            for entry in taken:
                figures.append(row_of(given, name, compiled, entry, taken))
                print(line_of(figures[-1]), flush=True)
            if given.json:  # each time, so that an early end leaves what was measured
                content = {"device": device, "figures": figures}
                write_atomic(given.json, json.dumps(content, indent=1) + "\n")
    entries = len(given.shapes) * len(ways) * len(given.contestants) * len(given.precisions)
    return int(len(figures) < entries)


if __name__ == "__main__":
    sys.exit(main())
