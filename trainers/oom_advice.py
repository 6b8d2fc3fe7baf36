"""Advice for a training that runs out of memory: which settings to lower."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from fope_lab.stages import TrainingConfig
from fope_lab.store.problems import first_line

CPU_ALLOCATOR = "DefaultCPUAllocator"
"""What torch's error contains on the CPU, where it is a plain RuntimeError."""


class TrainingMemoryError(RuntimeError):
    """A training needs more memory than there is; the message says what to lower."""


@contextlib.contextmanager
def memory_advice(spec: TrainingConfig) -> Iterator[None]:
    """Turn every out-of-memory error of the block into a TrainingMemoryError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        is_known = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not is_known and CPU_ALLOCATOR not in str(error):
            raise
        raise _advice(spec, error) from error


def _advice(spec: TrainingConfig, error: BaseException) -> TrainingMemoryError:
    train, length = spec.train, spec.data.length
    micro = train.micro_batch(spec.resources.size)
    kept, anew = [], []
    if micro > length:
        kept.append(f"lower train.micro_batch_tokens (now {micro}; at least data.length)")
    if not train.gradient_checkpointing:
        kept.append("set train.gradient_checkpointing: true (now false)")
    if spec.resources.strategy != "fsdp":
        kept.append("share the model: more resources.workers, and strategy: fsdp")
    if train.precision != "bfloat16":
        anew.append(f"set train.precision: bfloat16 (now {train.precision})")
    anew.append(f"lower data.length (now {length})")
    ways = [
        *([f"To continue from the last checkpoint: {'; '.join(kept)}."] if kept else []),
        f"As another stage, which starts from step 0: {'; '.join(anew)}.",
    ]
    return TrainingMemoryError(f"out of memory. {' '.join(ways)} ({first_line(error)})")
