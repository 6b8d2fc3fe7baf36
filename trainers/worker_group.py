"""What a training loop needs of the workers of its group. `WorkerGroup` itself is a group of one.

`trainers/process_group.py` has the groups of several processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fope_lab.model.decoder import Decoder

OptimizerState = Mapping[str, Mapping[str, Any]]
"""An optimizer's state of each parameter, by the parameter's name. It is whole, whichever group it
came from, so a group of any size and strategy can resume from it."""


class Precision(NamedTuple):
    """The types of numbers that a group exchanges of the matrices of layers: `weights` as their
    products use them, and `gradients` as workers add them up."""

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
