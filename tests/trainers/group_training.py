"""A small training in a process, or in a group of them, for tests of groups."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor

from fope_lab.data.mixture import Batch
from fope_lab.data.rows import IGNORED
from fope_lab.model import ModelConfig
from fope_lab.model.adapter import Adapter
from fope_lab.model.decoder import Decoder
from fope_lab.model.lora import add_adapter
from fope_lab.stages.training import TrainSettings
from trainers.optimizer import build_optimizer
from trainers.workers import FLOAT32, STRATEGIES, OptimizerState, Precision, WorkerGroup

VOCABULARY, ROWS, LENGTH, STEPS, HALF = 31, 4, 8, 5, 3
SETTINGS = TrainSettings(tokens=1, batch_tokens=ROWS * LENGTH, learning_rate=0.01)


@dataclass(frozen=True)
class Case:
    """What is trained."""

    embedding: Any = "rope"
    sizes: tuple[tuple[str, Any], ...] = ()
    frozen: tuple[str, ...] = ()
    adapter: Adapter | None = None
    gradient_checkpointing: bool = False
    bfloat16: bool = False
    exchange: Precision = FLOAT32
    tolerance: float = 1e-5
    """Of losses and norms. In bfloat16 a sum in another order may round to the next number."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    goes_on: bool = False
    """Whether it is trained on from the middle, too: what is saved is float32 in any case."""


@dataclass
class Trained:
    """What a training left: of each step the loss and the gradient's norm, and the state."""

    losses: list[float]
    norms: list[float]
    weights: dict[str, Tensor]
    optimizer: OptimizerState


def new_model(case: Case) -> Decoder:
    """The same in every process."""
    # 5 heads: hardly a size can be divided by the number of workers.
    sizes = {"num_layers": 2, "num_heads": 5, "head_dim": 6, "intermediate_size": 21}
    config = ModelConfig(**{**sizes, "vocab_size": VOCABULARY, **dict(case.sizes)})
    model = Decoder(config, case.embedding, train_length=LENGTH)
    model.gradient_checkpointing = case.gradient_checkpointing
    if case.adapter is not None:
        add_adapter(model, case.adapter, seed=0)
    let_learn(model, case)
    return model


def let_learn(model: Decoder, case: Case) -> None:
    for name, parameter in model.named_parameters():
        learns = case.adapter is None or "lora" in name
        parameter.requires_grad_(learns and not name.startswith(case.frozen or "-"))


def rows_of(step: int) -> Batch:
    """The global batch of a step: the second half of it, and so a worker, may have no labels."""
    generator = torch.Generator().manual_seed(step)
    places = torch.arange(LENGTH + 1) + torch.randint(VOCABULARY, (ROWS, 1), generator=generator)
    ids = 5 * places % VOCABULARY
    labels = ids[:, 1:].clone()
    labels[0, : step % LENGTH] = IGNORED
    labels[ROWS // 2 if step % 3 == 0 else 3 :] = IGNORED
    return Batch(ids[:, :-1], labels)


def train(
    workers: WorkerGroup, case: Case, first: int, last: int, start: Trained | None = None
) -> Trained:
    """Steps `first` … `last − 1`, each of rows one by one: as the loop has it, in short."""
    model = new_model(case)
    if start is not None:
        model.load_untied_state({name: one.clone() for name, one in start.weights.items()})
        let_learn(model, case)
    model.train()
    module = workers.wrap(model, torch.device("cpu"), case.exchange)
    optimizer = build_optimizer(model, replace(SETTINGS, optimizer=case.optimizer))
    if start is not None:
        workers.load_optimizer_state(model, optimizer, copy.deepcopy(start.optimizer))
    losses, norms = [], []
    for step in range(first, last):
        batch, share = rows_of(step), ROWS // workers.size
        mine = range(workers.rank * share, (workers.rank + 1) * share)
        count = workers.sum((batch.labels[mine] != IGNORED).sum())
        total = torch.zeros(())
        for row in mine:
            with (
                torch.autocast("cpu", torch.bfloat16, enabled=case.bfloat16),
                workers.accumulating(module) if row != mine[-1] else torch.enable_grad(),
            ):
                loss = module(batch.input_ids[[row]], labels=batch.labels[[row]]).loss / count
                loss.backward()
            total += loss.detach()
        norms.append(float(workers.clip(module, 0.5)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(workers.sum(total)))
    return Trained(losses, norms, workers.weights(model), workers.optimizer_state(model, optimizer))


def group(rank: int, size: int, folder: Path, cases: dict[str, Case]) -> None:
    """A process of the group: trains each case in each way, from the start, and some go on.

    `folder` holds what a single worker had in the middle as CASE.single.half, and gets
    CASE.STRATEGY.half, CASE.STRATEGY, and CASE.STRATEGY.from-ORIGIN, which went on from that.
    """
    torch.set_num_threads(1)
    rendezvous = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size)
    for name, case in cases.items():
        for strategy, workers in STRATEGIES.items():
            _keep(rank, folder / f"{name}.{strategy}", train(workers(), case, 0, STEPS))
        if case.goes_on:
            _go_on(rank, folder, name, case)
        _keep_exchanged(rank, folder / f"{name}.exchanged", case)
    dist.destroy_process_group()


def _go_on(rank: int, folder: Path, name: str, case: Case) -> None:
    for strategy, workers in STRATEGIES.items():
        _keep(rank, folder / f"{name}.{strategy}.half", train(workers(), case, 0, HALF))
    dist.barrier()
    half = {
        path.name.split(".")[1]: torch.load(path, weights_only=False)
        for path in folder.glob(f"{name}.*.half")
    }
    for strategy, workers in STRATEGIES.items():
        for origin, start in half.items():
            path = folder / f"{name}.{strategy}.from-{origin}"
            _keep(rank, path, train(workers(), case, HALF, STEPS, start))


def gone_on(rank: int, size: int, folder: Path, case: Case) -> None:
    """A process of a group that trains with DDP: from the start, and again from the middle.

    `folder` gets `whole`, `half`, and `rest`, which went on from the half."""
    torch.set_num_threads(1)
    rendezvous = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size)
    for name, last in (("whole", STEPS), ("half", HALF)):
        _keep(rank, folder / name, train(STRATEGIES["ddp"](), case, 0, last))
    dist.barrier()
    half = torch.load(folder / "half", weights_only=False)
    _keep(rank, folder / "rest", train(STRATEGIES["ddp"](), case, HALF, STEPS, half))
    dist.destroy_process_group()


def _keep_exchanged(rank: int, path: Path, case: Case) -> None:
    """Save the bytes that FSDP exchanges in two steps, by the exchange and the type of number."""
    exchanged: Counter[tuple[str, torch.dtype]] = Counter()

    def counting(name: str) -> Any:
        exchange = getattr(dist, name)

        def call(*tensors: Tensor, **more: Any) -> Any:
            source = more["input"] if "input" in more else tensors[1]
            exchanged[name, source.dtype] += source.nbytes
            return exchange(*tensors, **more)

        return patch.object(dist, name, call)

    with counting("all_gather_single"), counting("reduce_scatter_single"):
        train(STRATEGIES["fsdp"](), case, 0, 2)
    if rank == 0:
        torch.save(dict(exchanged), path)


def _keep(rank: int, path: Path, trained: Trained) -> None:
    if rank == 0:
        torch.save(trained, path)
