"""Linear maps without bias, whose weights the decoder draws from its seed."""

from __future__ import annotations

from torch import nn


class UninitializedLinear(nn.Linear):
    """A linear map without bias and with uninitialized weights, which the decoder draws.

    `nn.Linear` would draw weights from the global generator, which is slow and changes what others
    draw from it.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def reset_parameters(self) -> None:
        """Do nothing: the weights stay uninitialized."""
