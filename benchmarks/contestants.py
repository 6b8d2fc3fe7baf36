"""Three ways to train the same model on the same tokens, for benchmarks of training.

`ours` is trainers/loop.py, `hugging_face` is transformers' Trainer with LlamaForCausalLM, and
`bare` is fope-lab's decoder in a short loop as in nanoGPT, with the loss of all logits at once. All
start from the same weights and have the same fused AdamW, clipping and batch; none saves anything.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import tempfile
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
from transformers.utils import logging

from fope_lab.config.options import entry_of
from fope_lab.data.mixture import Batch
from fope_lab.model import SCALES, Decoder, ModelConfig
from fope_lab.stages.training import TrainSettings
from fope_lab.store.records import StagePaths
from fope_lab.store.writer import AttemptHandle, RunWriter
from trainers.loop import train
from trainers.optimizer import decay_groups

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
RATE, CLIP, DECAY, BETAS = 6e-4, 1.0, 0.1, (0.9, 0.95)
LOG_EVERY = 10


@dataclass(frozen=True)
class Shape:
    """A model, a batch of `rows` sequences of `length` tokens, and the steps of a turn.

    Where a step takes little time, a turn has more of them: the first one reads everything into
    the caches that the contestant before has filled.
    """

    config: ModelConfig
    rows: int
    length: int
    turn: int = 2

    @property
    def batch_tokens(self) -> int:
        """The number of tokens in a step."""
        return self.rows * self.length


def _scale(name: str, vocabulary: int, rows: int, length: int, turn: int = 2) -> Shape:
    return Shape(dataclasses.replace(SCALES[name], vocab_size=vocabulary), rows, length, turn)


def _small(layers: int, heads: int, head_dim: int, inner: int) -> ModelConfig:
    return ModelConfig(
        num_layers=layers,
        num_heads=heads,
        head_dim=head_dim,
        intermediate_size=inner,
        vocab_size=272,
    )


SHAPES: Mapping[str, Shape] = {
    "quickstart": Shape(_small(2, 2, 32, 128), 32, 64, turn=20),  # sweeps/quickstart.yaml
    "tiny": _scale("tiny", 272, 32, 64, turn=5),  # sweeps/mini
    "mini": _scale("mini", 272, 8, 256),  # bytes
    "20m": _scale("20m", 50_304, 2, 256),
    "60m": _scale("60m", 50_304, 64, 512),
    "1.2b": _scale("1.2b", 50_304, 8, 512),  # two of them must fit the device
}


class Turns:
    """In a contestant's process: waits for its turns of `steps` training steps, and times them.

    After each turn, its seconds and the peak of the GPU's memory in bytes so far are printed."""

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
                seconds = self._clock() - self._start
                print(seconds, _peak_memory(), file=self._report, flush=True)
            if self._taken < self.all_steps - 1 and not sys.stdin.readline():
                sys.exit("no more turns: the benchmark has ended")
            self._start = self._clock()
        self._taken += 1


def _wait_for_device() -> None:
    if CUDA:
        torch.cuda.synchronize()


def _peak_memory() -> int:
    """What PyTorch has allocated at most, in bytes; 0 on a CPU."""
    return torch.cuda.max_memory_allocated() if CUDA else 0


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


def start_model(shape: Shape, embedding: str = "rope") -> Decoder:
    """Create the model with the same weights each time."""
    with DEVICE:  # which draws them quicker than the CPU
        return Decoder(shape.config, embedding, train_length=shape.length, seed=0)


def ours(
    shape: Shape, tokens: torch.Tensor, turns: Turns, way: Way, embedding: str = "rope"
) -> None:
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
        start_model(shape, embedding),
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
    theirs = LlamaConfig(
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
    with DEVICE:
        model = LlamaForCausalLM(theirs)
    weights = start_model(shape).state_dict()
    head = weights.pop("lm_head.weight")
    named = {f"model.{name}": weight for name, weight in weights.items()}
    model.load_state_dict({**named, "lm_head.weight": head})
    return model


def hugging_face(shape: Shape, tokens: torch.Tensor, turns: Turns, way: Way) -> None:
    """Train with the Trainer of transformers."""
    logging.set_verbosity_error()  # no word about compiling on a CPU among the figures

    class Taking(TrainerCallback):
        def on_step_begin(self, *arguments: Any, **others: Any) -> None:
            turns.step()

    with tempfile.TemporaryDirectory() as folder:  # the Trainer makes one, and writes nothing
        trainer = Trainer(
            hugging_face_model(shape),
            TrainingArguments(
                output_dir=folder,
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


CONTESTANTS: Mapping[str, Contestant] = {
    "ours": ours,
    "fope": functools.partial(ours, embedding="fope"),
    "hugging face": hugging_face,
    "bare": bare,
}
