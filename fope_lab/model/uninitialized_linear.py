"""Linear maps without bias, which the decoder fills with seeded weights."""

from __future__ import annotations

from torch import nn


class UninitializedLinear(nn.Linear):
    """A linear map without bias, uninitialised: the decoder draws all weights in one place.

    `nn.Linear` would draw its own from the global generator, which is slow and moves other seeds.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def reset_parameters(self) -> None:
        """Leaves the weights as they are."""
