"""Several processes that train one model: DDP, or FSDP2 where each holds a share of everything.

Both exchange float32: bfloat16 is the loop's autocast, which casts whole weights where they are
used. Gradients are summed and not averaged, since the loop divides by the labels of all workers. A
process group must be there (torch.distributed.init_process_group), for the CPU and for the device:
"gloo", or "cpu:gloo,cuda:nccl".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from fope_lab.model.decoder import Decoder
from trainers.worker_group import WorkerGroup


class ProcessGroup(WorkerGroup):
    """The workers of torch's default process group."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def sum(self, value: Tensor) -> Tensor:
        """See WorkerGroup."""
        total = value.clone()
        dist.all_reduce(total)
        return total


class Replicas(ProcessGroup):
    """Each worker has the whole model and optimizer (Li et al., arXiv 2006.15704)."""

    def wrap(self, model: Decoder) -> nn.Module:
        """See WorkerGroup; all go on from worker 0's parameters."""
        # Buffers are the same everywhere: they follow from the configuration and the seed.
        module = DistributedDataParallel(
            model, forward_sync_buffers=False, gradient_as_bucket_view=True
        )
        module.register_comm_hook(None, lambda state, bucket: _summed(bucket.buffer()))
        return module

    def accumulating(self, module: nn.Module) -> contextlib.AbstractContextManager[None]:
        """See WorkerGroup."""
        return cast(DistributedDataParallel, module).no_sync()


def _summed(bucket: Tensor) -> torch.futures.Future[Tensor]:
    """The exchange of some of the gradients, without DDP's own division by the workers."""
    work = dist.all_reduce(bucket, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


class Shards(ProcessGroup):
    """Each worker has a share of each parameter and of its optimizer state, and all of a layer only
    while it is computed (FSDP2; Zhao et al., arXiv 2304.11277).

    Autocast keeps bfloat16 copies of all weights to the end of a forward pass, and autograd to that
    of the backward pass unless layers are computed twice (gradient_checkpointing).
    """

    def wrap(self, model: Decoder) -> nn.Module:
        """See WorkerGroup; parameters become sharded ones, in place."""
        device = next(model.parameters()).device.type
        mesh = init_device_mesh(device, (self.size,))
        # The position embeddings that layers share belong to the root, as do the token embedding
        # and the head, which may be one parameter.
        for module in (*model.layers, model):
            sharded = fully_shard(module, mesh=mesh)
            sharded.set_gradient_divide_factor(1.0)
            sharded.set_force_sum_reduction_for_comms(True)  # AVG and scaled sums are NCCL's alone
        return model

    @contextlib.contextmanager
    def accumulating(self, module: nn.Module) -> Iterator[None]:
        """See WorkerGroup."""
        sharded = cast(FSDPModule, module)
        sharded.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            sharded.set_requires_gradient_sync(True)

    def clip(self, module: nn.Module, norm: float) -> Tensor:
        """See WorkerGroup."""
        return cast(DTensor, super().clip(module, norm)).full_tensor()

    def weights(self, model: Decoder) -> dict[str, Tensor]:
        """See WorkerGroup."""
        return {name: self._whole(tensor) for name, tensor in model.untied_state().items()}

    def _whole(self, value: Any) -> Any:
        if not isinstance(value, DTensor):
            return value
        whole = value.full_tensor()  # one at a time, and kept by one worker alone, off the GPU
        return whole.cpu() if self.rank == 0 else None

    def _share(self, value: Any, parameter: Tensor) -> Any:
        assert isinstance(parameter, DTensor)
        if not isinstance(value, Tensor) or value.shape != parameter.shape:
            return value  # the number of steps
        mesh = parameter.device_mesh
        local = value.to(parameter.device)
        return distribute_tensor(local, mesh, parameter.placements, src_data_rank=None)


STRATEGIES: Mapping[str, Callable[[], ProcessGroup]] = MappingProxyType(
    {"ddp": Replicas, "fsdp": Shards}
)
"""A stage's `resources.strategy`."""


def is_lost_peer(error: BaseException) -> bool:
    """Whether an exchange failed, as it does where another worker is gone.

    gloo's errors have no class of their own, but name the file that they come from.
    """
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and "gloo/transport" in str(error)
