"""What to lower when a training runs out of memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from fope_lab.stages import TrainingConfig

CPU_ALLOCATOR = "DefaultCPUAllocator"
"""What torch's error begins with on the CPU, where it is a plain RuntimeError."""


class TrainingMemoryError(RuntimeError):
    """A training needs more memory than there is."""


@contextlib.contextmanager
def memory_advice(stage: TrainingConfig) -> Iterator[None]:
    """Around a training: raises TrainingMemoryError, which says what to lower, if memory ends."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _advice(stage, error) from error
    except RuntimeError as error:
        if CPU_ALLOCATOR not in str(error):
            raise
        raise _advice(stage, error) from error


def _advice(stage: TrainingConfig, error: BaseException) -> TrainingMemoryError:
    train, length = stage.train, stage.data.length
    share = train.batch_tokens // stage.resources.size
    micro = min(train.micro_batch_tokens or share, share)
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
