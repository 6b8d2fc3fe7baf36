"""What becomes of an embedding's coefficients when other frequencies need others of another size.

In the released code of FoPE (Hua et al., arXiv 2412.17739, `olmo/checkpoint.py`), a model that goes
on at twice the length has more frequencies above the floor, and so larger matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Resizing = Literal["draw", "expand", "pad"]
"""How tensors get another size: all drawn, or the old values and a rest that is drawn or 0."""


def resized(
    old: Mapping[str, Tensor], drawn: Mapping[str, Tensor], resizing: Resizing
) -> dict[str, Tensor]:
    """Return the tensors of a new embedding from those of an old one and from newly drawn ones.

    Names and numbers of dimensions agree. If all shapes do, the old tensors stay as they are.
    """
    if all(old[name].shape == tensor.shape for name, tensor in drawn.items()):
        return {name: old[name] for name in drawn}
    return {name: RESIZINGS[resizing](old[name], tensor) for name, tensor in drawn.items()}


def _expanded(old: Tensor, drawn: Tensor) -> Tensor:
    corner = tuple(slice(0, min(sizes)) for sizes in zip(old.shape, drawn.shape, strict=True))
    result = drawn.clone()
    result[corner] = old[corner].to(drawn)
    return result


RESIZINGS: Mapping[Resizing, Callable[[Tensor, Tensor], Tensor]] = {
    "draw": lambda old, drawn: drawn,
    "expand": _expanded,
    "pad": lambda old, drawn: _expanded(old, drawn.new_zeros(drawn.shape)),
}
"""A tensor of the new size, from the old one and a drawn one."""
