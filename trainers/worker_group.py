"""What a training loop needs of the workers of its group. `WorkerGroup` itself is a group of one.

`trainers/process_group.py` has the groups of several processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fope_lab.model.decoder import Decoder

OptimizerState = Mapping[str, Mapping[str, Any]]
"""What an optimizer holds of each parameter, by the parameter's name: whole, wherever it came from,
so that a group of any size and kind can go on from it."""


class WorkerGroup:
    """A group of one worker. The others override what exchanges something.

    The optimizer must be built after `wrap`, which may put other parameters into the model.
    """

    rank: int = 0
    size: int = 1

    def wrap(self, model: Decoder) -> nn.Module:
        """The module to call in training, for a model that is on its device: gradients of its
        backward pass are sums over the whole group."""
        return model

    def sum(self, value: Tensor) -> Tensor:
        """The sum of `value` over all workers, on all of them."""
        return value

    def accumulating(self, module: nn.Module) -> contextlib.AbstractContextManager[None]:
        """Around passes after which gradients are not complete yet, and need not be exchanged."""
        return contextlib.nullcontext()

    def clip(self, module: nn.Module, norm: float) -> Tensor:
        """Scale gradients down to a norm of at most `norm`; the norm before, over all workers."""
        return nn.utils.clip_grad_norm_(module.parameters(), norm)

    def weights(self, model: Decoder) -> dict[str, Tensor]:
        """The whole `untied_state` of the model on worker 0; anything on the others. All call."""
        return model.untied_state()

    def optimizer_state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> OptimizerState:
        """The whole state of the optimizer on worker 0; anything on the others. All call it."""
        return {
            name: {key: self._whole(value) for key, value in optimizer.state[parameter].items()}
            for name, parameter in model.named_parameters()
            if parameter in optimizer.state
        }

    def load_optimizer_state(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, state: OptimizerState
    ) -> None:
        """Put a state from `optimizer_state` back. All call it, with the same state.

        Raises ValueError if it is not that of the optimizer's parameters.
        """
        names = {parameter: name for name, parameter in model.named_parameters()}
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
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
        """What the group holds of a value of the optimizer's state, put together."""
        return value

    def _share(self, value: Any, parameter: Tensor) -> Any:
        """This worker's part of such a value, `parameter` being its own part of the parameter."""
        return value
