"""The workers that train one model: one alone, DDP, or FSDP2, which shards everything.

In bfloat16, FSDP2 casts the weights of the layers' products before it gathers them (autocast would
do it after that: the same numbers, twice the bytes), and adds up their gradients in bfloat16. All
else is exchanged in float32. Gradients are summed: the loop divides by the labels of all workers.

Groups of several processes need torch.distributed.init_process_group, called with a backend for the
CPU and for the device: "gloo", or "cpu:gloo,cuda:nccl".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from fope_lab.model.decoder import Decoder

OptimizerState = Mapping[str, Mapping[str, Any]]
"""An optimizer's whole state of each parameter, by the parameter's name."""


class Precision(NamedTuple):
    """The types in which a group exchanges the matrices of layers, and adds up their gradients."""

    weights: torch.dtype
    gradients: torch.dtype


FLOAT32 = Precision(torch.float32, torch.float32)


class WorkerGroup:
    """A group of one worker. Larger groups override the methods that exchange something.

    Build the optimizer after `wrap`, which may replace the model's parameters.
    """

    rank: int = 0
    size: int = 1

    def wrap(
        self, model: Decoder, device: torch.device, precision: Precision = FLOAT32
    ) -> nn.Module:
        """The module to call in training, on the device.

        The gradients of its backward pass are sums over the whole group.
        """
        return model.to(device)

    def sum(self, value: Tensor) -> Tensor:
        """The sum of `value` over all workers, which all of them get."""
        return value

    def agree(self, value: int) -> int:
        """The `value` of worker 0, which all of them get. All must call this."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """The values of all workers, by their ranks. All must call this."""
        return [value]

    def accumulating(self, module: nn.Module) -> contextlib.AbstractContextManager[None]:
        """A context for passes that are not the last of a step: they exchange no gradients."""
        return contextlib.nullcontext()

    def clip(self, module: nn.Module, norm: float) -> Tensor:
        """Scale the gradients to a norm of at most `norm`; returns the norm before, a scalar."""
        return nn.utils.clip_grad_norm_(module.parameters(), norm)

    def saves_shards(self, model: Decoder) -> bool:
        """Whether checkpoints to resume from are written by all workers, each its shares."""
        return False

    def weights(self, model: Decoder) -> dict[str, Tensor]:
        """The model's whole `untied_state` on worker 0; undefined elsewhere. All must call this."""
        return model.untied_state()

    def optimizer_state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> OptimizerState:
        """The optimizer's whole state on worker 0; undefined elsewhere. All must call this."""
        return {
            name: {key: self._whole(value) for key, value in optimizer.state[parameter].items()}
            for name, parameter in model.named_parameters()
            if parameter in optimizer.state
        }

    def load_optimizer_state(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, state: OptimizerState
    ) -> None:
        """Restore a state from `optimizer_state`. All must call this with the same state.

        Raises ValueError if the state belongs to other parameters than the optimizer's.
        """
        names = {parameter: name for name, parameter in model.named_parameters()}
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        wanted = {names[parameter] for parameter in parameters}
        if state and wanted != state.keys():
            odd = sorted(wanted ^ state.keys())
            raise ValueError(
                f"the optimizer's state is another model's: {len(odd)} of its parameters are not in"
                f" both, such as {odd[0]}"
            )
        shares = {
            index: {
                key: self._share(value, parameter)
                for key, value in state.get(names[parameter], {}).items()
            }
            for index, parameter in enumerate(parameters)
        }
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": shares if state else {}, "param_groups": groups})

    def _whole(self, value: Any) -> Any:
        """The whole of a value in the optimizer's state, gathered from all workers."""
        return value

    def _share(self, value: Any, parameter: Tensor) -> Any:
        """This worker's part of a whole value; `parameter` is its part of the parameter."""
        return value


SHARDED_FROM_BYTES = 1 << 30
"""The size of the weights from which checkpoints to resume from are written in shards. The
optimizer's state is twice as large."""


class ProcessGroup(WorkerGroup):
    """The workers of torch's default process group."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def sum(self, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total

    def agree(self, value: int) -> int:
        first = torch.tensor(value)  # on the CPU, so that no worker waits for its GPU
        dist.broadcast(first, src=0)
        return int(first)

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


class Replicas(ProcessGroup):
    """DDP: each worker has the whole model and optimizer (Li et al., arXiv 2006.15704).

    All start from worker 0's parameters.
    """

    def wrap(
        self, model: Decoder, device: torch.device, precision: Precision = FLOAT32
    ) -> nn.Module:
        # Buffers are the same everywhere, since they follow from the configuration and the seed.
        # After its first step DDP would put the gradients into other buckets, and so add those of
        # three workers up in another order than the first step after a resume does. It leaves the
        # buckets alone where it looks for unused parameters, which costs a walk through the graph.
        module = DistributedDataParallel(
            model.to(device),
            forward_sync_buffers=False,
            gradient_as_bucket_view=True,
            find_unused_parameters=device.type == "cpu" and self.size > 2,
        )
        module.register_comm_hook(None, lambda state, bucket: _summed(bucket.buffer()))
        return module

    def accumulating(self, module: nn.Module) -> contextlib.AbstractContextManager[None]:
        return cast(DistributedDataParallel, module).no_sync()


def _summed(bucket: Tensor) -> torch.futures.Future[Tensor]:
    """Sum a bucket of gradients over the workers, without DDP's division by their number."""
    work = dist.all_reduce(bucket, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


class Shards(ProcessGroup):
    """FSDP2: each worker has a share of each parameter and its optimizer state.

    A worker holds all of a layer only while it computes the layer (Zhao et al., arXiv 2304.11277).
    Layers are moved one after the other: the whole model need not fit the device.
    """

    def wrap(
        self, model: Decoder, device: torch.device, precision: Precision = FLOAT32
    ) -> nn.Module:
        if device.type == "cuda":
            torch.cuda.init()  # before it, a mesh would choose another GPU than the current one
        mesh = init_device_mesh(device.type, (self.size,))
        policy = MixedPrecisionPolicy(
            param_dtype=precision.weights,
            reduce_dtype=precision.gradients,
            cast_forward_inputs=False,  # autocast does
        )
        # The position embeddings that layers share belong to the root, as do the token embedding
        # and the head, which may be one parameter. All of the root is float32.
        for layer in model.layers:
            if precision == FLOAT32:
                _sum_gradients(fully_shard(layer, mesh=mesh))
            else:  # the layer's norms are float32, too, and belong to the root
                products: list[nn.Module] = [
                    one for one in layer.modules() if isinstance(one, nn.Linear)
                ]
                fully_shard(products, mesh=mesh, mp_policy=policy)
                _sum_gradients(cast(FSDPModule, products[0]))
        _sum_gradients(fully_shard(model, mesh=mesh))
        return model

    @contextlib.contextmanager
    def accumulating(self, module: nn.Module) -> Iterator[None]:
        sharded = cast(FSDPModule, module)
        sharded.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            sharded.set_requires_gradient_sync(True)

    def saves_shards(self, model: Decoder) -> bool:
        return sum(one.nbytes for one in model.parameters()) >= SHARDED_FROM_BYTES

    def clip(self, module: nn.Module, norm: float) -> Tensor:
        return cast(DTensor, super().clip(module, norm)).full_tensor()

    def weights(self, model: Decoder) -> dict[str, Tensor]:
        return {name: self._whole(tensor) for name, tensor in model.untied_state().items()}

    def _whole(self, value: Any) -> Any:
        if not isinstance(value, DTensor):
            return value
        whole = value.full_tensor()  # one tensor at a time, kept by worker 0 alone, off the GPU
        return whole.cpu() if self.rank == 0 else None

    def _share(self, value: Any, parameter: Tensor) -> Any:
        assert isinstance(parameter, DTensor)
        if not isinstance(value, Tensor) or value.shape != parameter.shape:
            return value  # the number of steps
        mesh = parameter.device_mesh
        local = value.to(parameter.device)
        return distribute_tensor(local, mesh, parameter.placements, src_data_rank=None)


def _sum_gradients(module: FSDPModule) -> None:
    """Have FSDP add gradients up: only NCCL has means and scaled sums."""
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)


STRATEGIES: Mapping[str, Callable[[], ProcessGroup]] = MappingProxyType(
    {"ddp": Replicas, "fsdp": Shards}
)
"""The group for each `resources.strategy` of a stage."""


def is_lost_peer(error: BaseException) -> bool:
    """Whether an exchange failed, as it does when another worker is gone.

    gloo's errors have no class of their own, but they name the source file that they come from.
    """
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and "gloo/transport" in str(error)
