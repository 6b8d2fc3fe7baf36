"""Advice for a training that runs out of memory: which settings to lower."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from fope_lab.stages import TrainingConfig

CPU_ALLOCATOR = "DefaultCPUAllocator"
"""How torch's error begins on the CPU, where it is a plain RuntimeError."""


class TrainingMemoryError(RuntimeError):
    """A training needs more memory than there is; the message says what to lower."""


@contextlib.contextmanager
def memory_advice(stage: TrainingConfig) -> Iterator[None]:
    """Turn every out-of-memory error of the block into a TrainingMemoryError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        is_known = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not is_known and CPU_ALLOCATOR not in str(error):
            raise
        raise _advice(stage, error) from error


def _advice(stage: TrainingConfig, error: BaseException) -> TrainingMemoryError:
    train, length = stage.train, stage.data.length
    micro = train.micro_batch(stage.resources.size)
    ways = []
    if micro > length:
        ways.append(f"lower train.micro_batch_tokens (now {micro}; at least data.length)")
    if not train.gradient_checkpointing:
        ways.append("set train.gradient_checkpointing: true (now false)")
    if train.precision != "bfloat16":
        ways.append(f"set train.precision: bfloat16 (now {train.precision})")
    if stage.resources.strategy != "fsdp":
        ways.append("share the model: more resources.workers, and strategy: fsdp")
    ways.append(f"lower data.length (now {length})")
    cause = (str(error).splitlines() or [type(error).__name__])[0]
    return TrainingMemoryError(f"out of memory; in this order: {'; '.join(ways)}. ({cause})")
