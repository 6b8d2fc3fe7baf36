"""Linear maps whose weights the decoder draws from its seed."""

from __future__ import annotations

from torch import nn


class UninitializedLinear(nn.Linear):
    """A linear map with uninitialized weights, which the decoder draws, and a bias of 0 or none.

    `nn.Linear` would draw weights from the global generator, which is slow and changes what others
    draw from it.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = False) -> None:
        super().__init__(inputs, outputs, bias=bias)

    def reset_parameters(self) -> None:
        """Set the bias to 0; the weights stay uninitialized."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)
