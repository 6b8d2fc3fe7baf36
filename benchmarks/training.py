"""Tokens per second of the training loop, Hugging Face's Trainer and a bare loop.

    python benchmarks/training.py [--shapes mini 20m] [--precisions float32] [--compile]
                                  [--rounds 7] [--json FILE]

Three contestants train the same shape of Llama from the same weights on the same tokens, with the
same fused AdamW, clipping and batch, and save nothing:

- `ours`: trainers/loop.py, which logs every tenth step;
- `hugging face`: transformers' Trainer with LlamaForCausalLM, which also logs every tenth step;
- `bare`: fope-lab's decoder in a short loop as in nanoGPT, with the loss of all logits at once.

Each trains in float32 and under bfloat16 autocast, in a process of its own; all take turns of a few
steps, so that other load affects all of them. Figures are medians over the rounds after a warm-up
round. Ratios are those of speeds in the same round, with the smallest and the largest in brackets:
to Hugging Face in the same precision, and to Hugging Face and to itself in float32. On a CPU,
training uses one thread. With a CUDA device, it uses bfloat16 at 60m and 1.2b, and `MFU` is the
share of the device's peak, with FLOPs as in fope_lab.model.config.flops_per_token.
Aims on a CPU: in bfloat16 ≥ 1.2 × Hugging Face in bfloat16 and ≥ 2.5 × its float32 at mini and 20m,
and ≥ 1.3 × its own float32 at the quickstart's shape. On an H100: ≥ 1.5 × Hugging Face, and ≥ 45 %
MFU at 1.2b.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from fope_lab.config.options import entry_of
from fope_lab.data.mixture import Batch
from fope_lab.devices import processor, recorded_device
from fope_lab.model import SCALES, Decoder, ModelConfig
from fope_lab.model.config import flops_per_token, parameters
from fope_lab.stages import TrainSettings
from fope_lab.store import AttemptHandle, RunWriter
from fope_lab.store.paths import StagePaths
from trainers.loop import train
from trainers.optimizer import decay_groups

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
RATE, CLIP, DECAY, BETAS = 6e-4, 1.0, 0.1, (0.9, 0.95)
LOG_EVERY = 10


@dataclass(frozen=True)
class Shape:
    """A model and a batch of `rows` sequences of `length` tokens."""

    config: ModelConfig
    rows: int
    length: int

    @property
    def batch_tokens(self) -> int:
        """The number of tokens in a step."""
        return self.rows * self.length


def _scale(name: str, vocabulary: int, rows: int, length: int) -> Shape:
    return Shape(dataclasses.replace(SCALES[name], vocab_size=vocabulary), rows, length)


def _small(layers: int, heads: int, head_dim: int, inner: int) -> ModelConfig:
    return ModelConfig(
        num_layers=layers,
        num_heads=heads,
        head_dim=head_dim,
        intermediate_size=inner,
        vocab_size=272,
    )


SHAPES: Mapping[str, Shape] = {
    "quickstart": Shape(_small(2, 2, 32, 128), 32, 64),  # sweeps/quickstart.yaml
    "tiny": Shape(dataclasses.replace(SCALES["tiny"], vocab_size=272), 32, 64),  # sweeps/mini
    "mini": _scale("mini", 272, 8, 256),  # bytes
    "20m": _scale("20m", 50_304, 2, 256),
    "60m": _scale("60m", 50_304, 64, 512),
    "1.2b": _scale("1.2b", 50_304, 8, 512),  # three of them must fit the device
}


class Turns:
    """In a contestant's process: waits for its turns of `steps` training steps, and times them."""

    def __init__(self, steps: int, rounds: int, clock: Callable[[], float]) -> None:
        self.all_steps = steps * rounds + 1
        self._steps, self._clock = steps, clock
        self._taken, self._start = 0, 0.0
        self._report, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no report

    def step(self) -> None:
        """To be called at the beginning of each step; the last step only ends the last turn."""
        if self._taken % self._steps == 0:
            if self._taken:
                _wait_for_device()
                print(self._clock() - self._start, file=self._report, flush=True)
            if self._taken < self.all_steps - 1:
                sys.stdin.readline()
            self._start = self._clock()
        self._taken += 1


def _wait_for_device() -> None:
    if CUDA:
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Way:
    """How a contestant trains: in which precision, and whether compiled."""

    precision: str
    compiled: bool

    @property
    def narrow(self) -> bool:
        """Whether products are in bfloat16."""
        return self.precision == "bfloat16"


Contestant = Callable[[Shape, torch.Tensor, Turns, Way], None]
"""Trains a shape on tokens (rows of length + 1) in one way, taking its turns."""


def rows_of(tokens: torch.Tensor, shape: Shape, step: int) -> torch.Tensor:
    """The rows of a step, (rows, length + 1)."""
    first = step * shape.rows % (len(tokens) - shape.rows)
    return tokens[first : first + shape.rows]


def start_model(shape: Shape) -> Decoder:
    """Create the model with the same weights each time."""
    return Decoder(shape.config, "rope", train_length=shape.length, seed=0).to(DEVICE)


def ours(shape: Shape, tokens: torch.Tensor, turns: Turns, way: Way) -> None:
    """Train with the loop of the training stages."""
    settings = entry_of(TrainSettings).read(
        {
            "tokens": turns.all_steps * shape.batch_tokens,
            "batch_tokens": shape.batch_tokens,
            "learning_rate": RATE,
            "gradient_clip": CLIP,
            "weight_decay": DECAY,
            "betas": BETAS,
            "precision": way.precision,
            "compile": way.compiled,
            "log_every": LOG_EVERY,
            "checkpoint_every": 10**9,
        }
    )

    def batches(step: int) -> Batch:
        turns.step()
        rows = rows_of(tokens, shape, step)
        return Batch(rows[:, :-1], rows[:, 1:])

    train(
        start_model(shape),
        batches,
        settings,
        RunWriter(AttemptHandle(StagePaths(Path()), 0, None)),
        lambda directory, weights: None,
        seed=0,
        device=DEVICE,
    )


def bare(shape: Shape, tokens: torch.Tensor, turns: Turns, way: Way) -> None:
    """Train with a short loop as in nanoGPT's train.py."""
    model = start_model(shape)
    optimizer = torch.optim.AdamW(decay_groups(model, DECAY), lr=RATE, betas=BETAS, fused=True)
    called = torch.compile(model) if way.compiled else model
    for step in range(turns.all_steps):
        turns.step()
        rows = rows_of(tokens, shape, step).to(DEVICE)
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=way.narrow):
            logits = called(rows[:, :-1]).logits
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


class Windows(Dataset[dict[str, torch.Tensor]]):
    """What Hugging Face's Trainer reads: it predicts one token less of each row than the others."""

    def __init__(self, tokens: torch.Tensor) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = self.tokens[index, :-1]
        return {"input_ids": ids, "labels": ids}


def hugging_face_model(shape: Shape) -> LlamaForCausalLM:
    """Return Hugging Face's model with fope-lab's weights."""
    config = shape.config
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            rms_norm_eps=config.norm_eps,
            max_position_embeddings=shape.length,
            use_cache=False,
        )
    )
    weights = start_model(shape).state_dict()
    head = weights.pop("lm_head.weight")
    named = {f"model.{name}": weight for name, weight in weights.items()}
    model.load_state_dict({**named, "lm_head.weight": head})
    return model


def hugging_face(shape: Shape, tokens: torch.Tensor, turns: Turns, way: Way) -> None:
    """Train with the Trainer of transformers."""

    class Taking(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *arguments: Any, **others: Any) -> None:
            turns.step()

    trainer = Trainer(
        hugging_face_model(shape),
        TrainingArguments(
            output_dir="/nonexistent",
            max_steps=turns.all_steps,
            per_device_train_batch_size=shape.rows,
            learning_rate=RATE,
            lr_scheduler_type="cosine",
            warmup_steps=turns.all_steps // 10,
            max_grad_norm=CLIP,
            weight_decay=DECAY,
            adam_beta1=BETAS[0],
            adam_beta2=BETAS[1],
            optim="adamw_torch_fused",
            bf16=way.narrow,
            use_cpu=not CUDA,
            torch_compile=way.compiled,
            logging_steps=LOG_EVERY,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Windows(tokens),
        callbacks=[Taking()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
PRECISIONS = ("float32", "bfloat16")
CONTESTANTS: Mapping[str, Contestant] = {"ours": ours, "hugging face": hugging_face, "bare": bare}


def take_part(given: argparse.Namespace) -> None:
    """Run a contestant in its own process."""
    shape = SHAPES[given.shapes[0]]
    generator = torch.Generator().manual_seed(0)
    size = (64 * shape.rows, shape.length + 1)
    tokens = torch.randint(shape.config.vocab_size, size, generator=generator)
    turns = Turns(given.steps, given.rounds + 1, CLOCKS[given.clock])
    way = Way(given.precisions[0], bool(given.compile))
    CONTESTANTS[given.take_part](shape, tokens, turns, way)


Entry = tuple[str, str]
"""A contestant and its precision."""


def compete(given: argparse.Namespace, shape: str, compiled: bool) -> dict[Entry, list[float]]:
    """Seconds of each turn, by contestant and precision; the first round does not count."""
    options = ["--shapes", shape, "--steps", str(given.steps), "--rounds", str(given.rounds)]
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
    seconds: dict[Entry, list[float]] = {entry: [] for entry in processes}
    for _ in range(given.rounds + 1):
        for entry, process in processes.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            seconds[entry].append(float(process.stdout.readline()))
    for process in processes.values():
        process.communicate()
    return {entry: of[1:] for entry, of in seconds.items()}


def ratios(seconds: Mapping[Entry, list[float]], entry: Entry) -> dict[str, list[float]]:
    """How many times as fast an entry is as others, in each round, by what it is compared with."""
    contestant, precision = entry
    others = {
        "of_hugging_face": ("hugging face", precision),
        "of_hugging_face_in_float32": ("hugging face", "float32"),
        "of_itself_in_float32": (contestant, "float32"),
    }
    return {
        name: [theirs / own for theirs, own in zip(seconds[other], seconds[entry], strict=True)]
        for name, other in others.items()
        if other in seconds
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
    parser.add_argument("--steps", type=int, default=2, help="of a turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS), choices=CONTESTANTS)
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="cpu: on a busy machine")
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    parser.add_argument("--take-part", choices=CONTESTANTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Print a line for each shape, way and contestant."""
    given = arguments()
    torch.set_num_threads(1)
    if given.take_part:
        take_part(given)
        return
    kind = torch.cuda.get_device_name() if CUDA else f"{processor()}, one thread"
    device = f"{kind}, torch {torch.__version__}, {given.clock} time"
    print(device)
    figures = []
    for name in given.shapes:
        shape = SHAPES[name]
        total = parameters(shape.config).total / 1e6
        print(f"{name}: {total:.1f}M parameters, batch {shape.rows} × {shape.length} tokens")
        print(
            f"  {'':30} {'tokens/s':>9}  × Hugging Face         × its float32         × own float32"
        )
        for compiled in (False, True) if given.compile is None else (given.compile,):
            seconds = compete(given, name, compiled)
            for entry, of in seconds.items():
                rate = given.steps * shape.batch_tokens / statistics.median(of)
                found = ratios(seconds, entry)
                share = utilisation(shape, entry[1], rate)
                row = {
                    "shape": name,
                    "compile": compiled,
                    "contestant": entry[0],
                    "precision": entry[1],
                    "tokens_per_second": rate,
                    **{to: statistics.median(each) for to, each in found.items()},
                    "ratios": found,
                    "mfu": share,
                }
                figures.append(row)
                columns = "  ".join(
                    f"{statistics.median(each):6.3f} [{min(each):.3f}, {max(each):.3f}]"
                    for each in found.values()
                )
                print(
                    f"  {'compiled' if compiled else 'eager':8} {entry[0]:12} {entry[1]:8}"
                    f" {rate:9.0f} {columns}{'' if share is None else f'  MFU {share:.1%}'}",
                    flush=True,
                )
    if given.json:
        content = {"device": device, "figures": figures}
        given.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
