"""Cost of each position embedding relative to rope: time of attention, time of training, memory.

    python benchmarks/embeddings.py [--presets fope rope/512 …] [--lengths 512 4096] [--json FILE]

The columns are multiples of rope's figure, followed by the embedding's own in brackets:

- `layer @ N`: forward and backward of an attention layer (width 512, 8 heads × 64) at length N;
- `step`: an end-to-end training step of a decoder of four such layers at 512 tokens;
- `memory @ N`: the growth of peak memory in a forward and backward of the layer; on a CPU, in a
  fresh process.

Times are medians of ratios to rope, from pairs run alternately on one thread, so that other load
affects both. With a CUDA device, everything is in bfloat16 and memory is what PyTorch allocates; on
a CPU, everything is in float32 and memory is that of the process (Linux).
Aims: rotary and Fourier presets within 3 % of rope end to end; a bias within 1.5 × its memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812

from fope_lab.config.atomic_files import write_atomic
from fope_lab.embeddings import PRESETS, build_embedding
from fope_lab.embeddings.spec import PATTERN, example
from fope_lab.model import Decoder, ModelConfig
from fope_lab.model.attention import Attention

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
DTYPE = torch.bfloat16 if CUDA else torch.float32
CONFIG = ModelConfig(num_layers=4, num_heads=8, head_dim=64, vocab_size=272)
TRAIN_LENGTH = 512
BATCH = 2
FIRST = ("rope", "fope", "alibi", "kerple")
"""The presets with an aim, which are measured first."""
LAST = "fire"
"""The slowest by far on a GPU at long lengths."""
WINDOWS = (512,)
"""The windows of rows of rope, in tokens."""
WIDTH = 20
"""Of a column of the table, in characters."""

Work = Callable[[], None]


class Figure(NamedTuple):
    """A figure as a multiple of rope's, and itself: in seconds for a time, in bytes for memory."""

    of_rope: float
    own: float


Column = Callable[[str], Figure]
"""The figure of each preset."""

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "learned": {"num_positions": 2**17},
    "random-rope": {"max_length": 2**17},
}
"""The options that presets need for the lengths of this benchmark."""


def described(row: str) -> dict[str, Any]:
    """The preset of a row, with the options that it needs."""
    preset, _, _ = row.partition("/")
    return {**example(preset), **OPTIONS.get(preset, {})}


def window_of(row: str) -> int | None:
    """The window of a row such as rope/512."""
    _, _, window = row.partition("/")
    return int(window) if window else None


def layer_passes(length: int) -> Callable[[str], Work]:
    """For each preset, forward and backward of one attention layer on one sequence, with what the
    embedding computes for it. The layer, the same for all, is made once."""
    layer = Attention(CONFIG).to(DEVICE, DTYPE)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.02)
    hidden = torch.randn(1, length, CONFIG.hidden_size, device=DEVICE, dtype=DTYPE)
    hidden.requires_grad_()
    grad = torch.randn_like(hidden)

    def of(preset: str) -> Work:
        embedding = build_embedding(
            described(preset),
            head_dim=CONFIG.head_dim,
            num_heads=CONFIG.num_heads,
            train_length=TRAIN_LENGTH,
        ).to(DEVICE)

        def once() -> None:
            positions = embedding.positions(length, device=DEVICE)
            at = embedding.places(positions, steps=True)
            mixed = layer(hidden, embedding, at, None, window_of(preset))
            torch.autograd.backward(mixed, grad)
            for tensor in (hidden, *layer.parameters(), *embedding.parameters()):
                tensor.grad = None

        return once

    return of


def training_steps() -> Callable[[str], Work]:
    """For each preset, a step of a small decoder with AdamW, end to end. All share one decoder's
    weights: where these lie in memory is worth some per cent."""
    weights = Decoder(CONFIG, "nope", train_length=TRAIN_LENGTH).to(DEVICE, DTYPE)
    optimizer = torch.optim.AdamW(weights.parameters(), lr=1e-4)
    tokens = torch.randint(CONFIG.vocab_size, (BATCH, TRAIN_LENGTH + 1), device=DEVICE)

    def of(preset: str) -> Work:
        layer = {"embedding": described(preset), "window": window_of(preset)}
        spec: Any = (
            {"type": "layered", "pattern": [layer]} if layer["window"] else layer["embedding"]
        )
        model = Decoder(CONFIG, spec, train_length=TRAIN_LENGTH).to(DEVICE, DTYPE)
        model.load_state_dict(weights.state_dict(keep_vars=True), strict=False, assign=True)
        learned = list(model.position_embeddings.parameters())
        optimizers = [optimizer, *([torch.optim.AdamW(learned, lr=1e-4)] if learned else [])]

        def once() -> None:
            logits = model(tokens[:, :-1]).logits
            loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
            torch.autograd.backward(loss)
            for one in optimizers:
                one.step()
                one.zero_grad()

        return once

    return of


class Budget(NamedTuple):
    """The seconds for the pairs of a time, and how many there are at least."""

    seconds: float
    pairs: int


def seconds(work: Work) -> float:
    """Return the wall time of a run in seconds."""
    if CUDA:
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if CUDA:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def time_of(ours: Work, rope: Work, budget: Budget) -> Figure:
    """The median ratio of times in pairs, as many as fit the budget, and the median time."""
    of_ours, of_rope = seconds(ours), seconds(rope)  # the first runs compile and allocate
    if budget.pairs == 1 and of_ours + of_rope > budget.seconds:
        return Figure(of_ours / of_rope, of_ours)
    pairs = max(int(budget.seconds / (seconds(ours) + seconds(rope))), budget.pairs)
    ratios, own = [], []
    for pair in range(pairs):
        first, second = (ours, rope) if pair % 2 else (rope, ours)
        times = {first: seconds(first), second: seconds(second)}
        ratios.append(times[ours] / times[rope])
        own.append(times[ours])
    return Figure(statistics.median(ratios), statistics.median(own))


def peak_memory() -> int:
    """The most memory so far, in bytes: what PyTorch allocated on CUDA, the process's on a CPU."""
    if CUDA:
        return torch.cuda.max_memory_allocated()
    # Not getrusage, whose peak begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    [line] = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def memory_growth(preset: str, length: int) -> int:
    """How far the peak grows in a layer's pass; on a CPU, this process should be a fresh one."""
    once = layer_passes(length)(preset)
    if CUDA:
        once()  # which compiles
        torch.cuda.reset_peak_memory_stats()
    before = peak_memory()
    once()
    return peak_memory() - before


def memory_of(preset: str, length: int) -> int:
    """`memory_growth`, on a CPU in a process of its own."""
    if CUDA:
        return memory_growth(preset, length)
    line = [sys.executable, __file__, "--grow", preset, str(length)]
    return int(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def layer_column(length: int, budget: Budget) -> Column:
    """Return the column of times of a layer's pass at a length, relative to rope."""
    of = layer_passes(length)
    return lambda preset: time_of(of(preset), of("rope"), budget)


def step_column(budget: Budget) -> Column:
    """Return the column of times of a training step, relative to rope."""
    of = training_steps()
    return lambda preset: time_of(of(preset), of("rope"), budget)


def memory_column(length: int) -> Column:
    """Return the column of memory growth in a layer's pass at a length, relative to rope."""
    rope = memory_of("rope", length)

    def of(preset: str) -> Figure:
        own = memory_of(preset, length)
        return Figure(own / rope, own)

    return of


def shown(name: str, figure: Figure) -> str:
    """A figure of the column of that name, as the table prints it."""
    unit, size = ("MiB", 2**20) if name.startswith("memory") else ("ms", 1e-3)
    return f"{figure.of_rope:.3f} ({figure.own / size:.4g} {unit})"


def device_name() -> str:
    """Return a description of the machine that the figures were measured on."""
    kind = torch.cuda.get_device_name() if CUDA else "CPU, one thread"
    return f"{kind}, {str(DTYPE).removeprefix('torch.')}, torch {torch.__version__}"


def arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    layers = [name for name, preset in PRESETS.items() if PATTERN not in preset.composition]
    middle = [name for name in layers if name not in (*FIRST, LAST)]
    presets = [*FIRST, *middle, LAST]
    windowed = [f"rope/{window}" for window in WINDOWS]
    choices = [*layers, *windowed]
    parser.add_argument("--presets", nargs="+", default=[*presets, *windowed], choices=choices)
    parser.add_argument("--lengths", nargs="*", type=int, default=[512, 4096], help="of `layer`")
    parser.add_argument("--steps", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--memory", nargs="*", type=int, default=[16_384], help="lengths")
    parser.add_argument("--budget", type=float, default=10, help="seconds for each time")
    parser.add_argument(
        "--pairs",
        type=int,
        default=5,
        help="for each time, at least; with 1, a first run longer than the budget is it",
    )
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    parser.add_argument("--grow", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure and print the table, cell by cell; return 1 if a cell failed, else 0."""
    given = arguments()
    torch.set_num_threads(1)
    if given.grow:
        print(memory_growth(given.grow[0], int(given.grow[1])))
        return 0
    budget = Budget(given.budget, given.pairs)
    columns: dict[str, Column] = {}
    for length in given.lengths:
        columns[f"layer @ {length}"] = layer_column(length, budget)
    if given.steps:
        columns["step"] = step_column(budget)
    for length in given.memory:
        columns[f"memory @ {length}"] = memory_column(length)
    print(f"× rope; {device_name()}")
    print(f"{'':16}", *(f"{name:>{WIDTH}}" for name in columns))
    figures: dict[str, dict[str, Figure]] = {}
    errors: dict[str, str] = {}
    for preset in given.presets:
        print(f"{preset:16}", end="", flush=True)
        figures[preset] = {}
        for name, measure in columns.items():
            try:
                figures[preset][name] = value = measure(preset)
            except Exception as error:  # it costs this cell, and none of the others
                errors[f"{preset}, {name}"] = f"{type(error).__name__}: {error}"
                print(f" {'failed':>{WIDTH}}", end="", flush=True)
            else:
                print(f" {shown(name, value):>{WIDTH}}", end="", flush=True)
        print()
        if given.json:  # after each preset, so that an early end leaves what was measured
            of = {name: {at: f._asdict() for at, f in row.items()} for name, row in figures.items()}
            content = {"device": device_name(), "figures": of, "errors": errors}
            write_atomic(given.json, json.dumps(content, indent=1) + "\n")
    for cell, message in errors.items():
        print(f"{cell}: {message}", file=sys.stderr)
    return int(bool(errors))


if __name__ == "__main__":
    sys.exit(main())
