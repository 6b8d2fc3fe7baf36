"""What a training stage saves, so that resuming from it changes no bit of the result.

A checkpoint folder holds the model (fope_lab/model/checkpoint.py) and training.json with the
record. Unless it is the stage's final checkpoint, it also holds what the resumed loop needs:
training.pt with the optimizer's state and the random-number generators, and best.safetensors with
the weights that the stage selects so far, if the model has moved on.

Checkpoints of large sharded models are written by all workers together while the training goes on:
it waits only until each has copied its shares of the weights and of the optimizer's state to its
CPU's memory. Worker 0 gives the folder its manifest and its name when all are written. A group of
any size and strategy can go on from it.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from fope_lab.config.atomic_files import is_full_disk
from fope_lab.model.checkpoint_files import SHARDS, WEIGHTS
from fope_lab.model.decoder import Decoder
from fope_lab.stages.training import ROW_ACCURACY, TOKEN_ACCURACY, TRAINING_RECORD
from fope_lab.store.checkpoint import Checkpoint
from fope_lab.store.records import StoreError
from fope_lab.store.writer import CheckpointDraft, RunWriter
from trainers.workers import WorkerGroup

STATE = "training.pt"
BEST = "best.safetensors"


@dataclass
class TrainingRecord:
    """A training so far: steps done, the loss of each (nats) and the seconds that they took.

    `data_seconds` of these `seconds` went by while the loop waited for a batch (a GPU may still
    compute then). `peak_steps` are the steps that its devices would have taken in `seconds` at
    their peak, None if that is not known of all of them. Accuracies are measured if the training
    stops at one or selects by one.
    """

    step: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    data_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    validation_seconds: float = 0.0
    peak_steps: float | None = None
    validation_steps: list[int] = field(default_factory=list)
    validation_losses: list[float] = field(default_factory=list)
    validation_accuracies: list[float] = field(default_factory=list)
    validation_token_accuracies: list[float] = field(default_factory=list)

    def accuracies(self, name: str) -> list[float]:
        """The accuracies with this name, in the order of the validations."""
        return {
            ROW_ACCURACY: self.validation_accuracies,
            TOKEN_ACCURACY: self.validation_token_accuracies,
        }[name]

    def selected_step(self, select: str) -> int | None:
        """The validated step that `train.select` chooses, the first of equals; None for `last`."""
        scores = {
            "last": [],
            "best": [-loss for loss in self.validation_losses],
            "most-accurate": self.validation_token_accuracies,
        }[select]
        return self.validation_steps[scores.index(max(scores))] if scores else None


def write_record(directory: Path, record: TrainingRecord) -> None:
    (directory / TRAINING_RECORD).write_text(json.dumps(asdict(record)), encoding="utf-8")


def read_record(directory: Path) -> TrainingRecord:
    return TrainingRecord(**json.loads((directory / TRAINING_RECORD).read_text(encoding="utf-8")))


def write_state(
    directory: Path, optimizer: Mapping[str, Any], best: Path | None, device: torch.device
) -> None:
    """Save what only a resumed loop needs: the optimizer's whole state, this process's
    random-number generators, and the file `best` with the best weights, if the model's are others.
    """
    if best is not None:
        shutil.copyfile(best, directory / BEST)
    random = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state(device)
    with (directory / STATE).open("wb") as file:  # so that a full disk raises an OSError
        torch.save({"optimizer": optimizer, "random": random}, file)


def restore_state(directory: Path, device: torch.device) -> Mapping[str, Any]:
    """Restore the random-number generators; returns the saved state of the optimizer.

    The generators of one worker serve all. After an attempt on a CPU, a GPU keeps its own.
    """
    state = torch.load(directory / STATE, map_location="cpu", weights_only=True)
    torch.set_rng_state(state["random"]["cpu"])
    if device.type == "cuda" and "cuda" in state["random"]:
        torch.cuda.set_rng_state(state["random"]["cuda"], device)
    return dict(state["optimizer"])


def best_weights(directory: Path) -> Path:
    """The file with the best weights in a checkpoint to resume from."""
    own = directory / BEST
    return own if own.exists() else directory / WEIGHTS


MOMENTS = ("exp_avg", "exp_avg_sq")
"""What AdamW keeps of each parameter, in its shape, beside the number of its steps."""


def is_sharded(checkpoint: Path) -> bool:
    """Whether a checkpoint holds the weights and the optimizer's state in shards."""
    return (checkpoint / SHARDS).is_dir()


def sharded_state(model: Decoder, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The tensors of this worker by one name each, as torch.distributed.checkpoint takes them."""
    state: dict[str, Any] = {f"model.{name}": t for name, t in model.untied_state().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            state[f"optimizer.{key}.{name}"] = value
    return state


def load_shards(checkpoint: Path, model: Decoder, optimizer: torch.optim.Optimizer) -> None:
    """Read what `model` and `optimizer` hold on this worker. All workers of a group call this.

    Raises ValueError for another model's checkpoint, and StoreError if it can't be read.
    """
    reader = FileSystemReader(checkpoint / SHARDS)
    names = reader.read_metadata().state_dict_metadata.keys()
    parameters = dict(model.named_parameters())
    for key, make in FIRST_STATES.items():
        for name, parameter in parameters.items():
            if f"optimizer.{key}.{name}" in names:
                optimizer.state[parameter] = make(parameter)
    state = sharded_state(model, optimizer)
    if odd := sorted(state.keys() ^ names):
        raise ValueError(
            f"the checkpoint {checkpoint} is another model's: {len(odd)} tensors are not in both,"
            f" such as {odd[0]}"
        )
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):  # that one worker is alone
            load(state, storage_reader=reader, no_dist=not dist.is_initialized())
    except CheckpointException as error:
        failure = _first_failure(error)
        raise StoreError(f"{checkpoint} can't be read: {failure}") from failure


def _first_failure(error: CheckpointException) -> BaseException:
    """What failed on the first of the workers. The exception itself is a BaseException."""
    return next(iter(error.failures.values()))[0]


class ShardWriter(FileSystemWriter):
    """Writes shards, and names a full disk in a way that the other workers understand, too."""

    def write_data(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().write_data(*arguments, **options)
        except Exception as error:
            # torch.save raises another error after the OSError, and only the last one is sent.
            if is_full_disk(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise


def _adamw_state(parameter: Tensor) -> dict[str, Tensor]:
    # Fused, the number of steps is on the device.
    step = torch.zeros((), dtype=torch.float32, device=parameter.device)
    return {"step": step, **{key: torch.zeros_like(parameter) for key in MOMENTS}}


FIRST_STATES: Mapping[str, Callable[[Tensor], dict[str, Tensor]]] = {
    "step": _adamw_state,
    "momentum_buffer": lambda parameter: {"momentum_buffer": torch.zeros_like(parameter)},
}
"""What AdamW and Muon keep of a parameter from their first step on, all 0, by what only they do."""


class ShardedCheckpoints:
    """Writes the checkpoints of one training; every worker has one, and all call its methods."""

    def __init__(self, writer: RunWriter, workers: WorkerGroup) -> None:
        self._writer, self._workers = writer, workers
        # The training's own group exchanges gradients while this one agrees on files.
        self._group = dist.new_group(backend="gloo")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[Checkpoint] | None = None

    def begin(self, step: int, state: dict[str, Any], write: Callable[[Path], None]) -> None:
        """Begin to write `state`, which may change as soon as this returns, after the one before.

        On worker 0 `write` puts small files beside the shards at once. Raises what kept the
        checkpoint before from being written.
        """
        self.wait()
        draft = self._writer.begin_checkpoint(step)
        folder = self._workers.gather(draft.folder)[0]
        if self._workers.rank == 0:
            try:
                write(folder)
            except Exception as error:
                self._writer.discard(draft, error)
                raise
        shards = ShardWriter(folder / SHARDS)
        written = async_save(state, storage_writer=shards, process_group=self._group)
        assert isinstance(written, Future)
        self._pending = self._thread.submit(self._commit, written, draft)

    @property
    def is_writing(self) -> bool:
        """Whether this worker still writes. Raises what kept a checkpoint from being written."""
        if self._pending is not None and self._pending.done():
            self.wait()
        return self._pending is not None

    def wait(self) -> None:
        """Wait until the last checkpoint is written; raises what kept it from that."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _commit(self, written: Future[Any], draft: CheckpointDraft) -> Checkpoint:
        try:
            written.result()
        except CheckpointException as error:
            failure = _first_failure(error)
            self._writer.discard(draft, failure)
            raise StoreError(f"{draft.folder} can't be written: {failure}") from failure
        return self._writer.commit(draft)
