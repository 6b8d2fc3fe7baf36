"""Fourier position embedding: every rotating pair follows a series of all kept frequencies.

Hua et al., "Fourier Position Embedding", arXiv 2412.17739, Eq. 11–13: pair m is multiplied by
e^{iω_m n} + Σ_ω a_ω e^{iωn}, with coefficients of its own for the cosines and for the sines. The
series acts on queries and on keys at their own positions, as in the paper's listing, so scores are
not exactly functions of position differences.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from fope_lab.embeddings.base import Bounds, Shape, Tensors
from fope_lab.embeddings.rotary import Rotary, cos_sin

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Fourier(Rotary, name="fourier"):
    """FoPE's series over a frequency ladder; pairs of frequency 0 do not turn (cos 1, sin 0).

    `sigma` is the gain of the coefficients' noise, which is drawn for each layer and each
    key-value head with standard deviation σ·√(2/(frequencies + pairs)).
    """

    shift_invariant: ClassVar[bool] = False

    sigma: Annotated[float, Bounds(ge=0)] = 0.3

    @property
    def per_layer(self) -> bool:
        """Always: the coefficients of layers are independent."""
        return True

    @property
    def tables_per_head(self) -> bool:
        """Always: each key-value head has coefficients of its own."""
        return True

    def problems(self, shape: Shape) -> Iterator[str]:
        """Also: a ladder without a frequency to build a series from."""
        known = list(super().problems(shape))
        yield from known
        if not known and not self.ladder(shape).rotating:
            yield (
                f"no frequency is left for the Fourier series (head_dim {shape.head_dim},"
                f" base {self.base:g}, training length {shape.train_length})"
            )

    def noise_deviation(self, shape: Shape) -> float:
        """The standard deviation that σ, a gain, stands for at this shape."""
        kept = self.ladder(shape).rotating
        return self.sigma * math.sqrt(2 / (kept + kept))

    def tensors(self, shape: Shape) -> Tensors:
        """`inv_freq`, and `cos_coef` and `sin_coef` (num_kv_heads, frequencies, rotating pairs).

        Column m of a coefficient matrix holds the series of pair m, identity included.
        """
        import torch

        kept = self.ladder(shape).rotating
        generator = torch.Generator("cpu").manual_seed(_layer_seed(shape.seed, shape.layer))
        identity = torch.eye(kept, dtype=torch.float32, device="cpu")

        def coefficients() -> Tensor:
            noise = torch.randn(
                shape.num_kv_heads,
                kept,
                kept,
                generator=generator,
                dtype=torch.float32,
                device="cpu",
            )
            return identity + self.noise_deviation(shape) * noise

        return Tensors(
            constants=super().tensors(shape).constants,
            drawn={"cos_coef": coefficients(), "sin_coef": coefficients()},
        )

    def tables(self, tensors: Mapping[str, Tensor], positions: Tensor) -> tuple[Tensor, Tensor]:
        """The series at each position, float32 (…, num_kv_heads, length, head_dim/2)."""
        import torch

        inv_freq, cos_coef, sin_coef = (
            tensors[name] for name in ("inv_freq", "cos_coef", "sin_coef")
        )
        frequencies, pairs = cos_coef.shape[-2:]
        cos, sin = cos_sin(inv_freq[:frequencies], positions)
        still = (0, inv_freq.shape[0] - pairs)
        return (
            torch.nn.functional.pad(cos[..., None, :, :] @ cos_coef, still, value=1.0),
            torch.nn.functional.pad(sin[..., None, :, :] @ sin_coef, still, value=0.0),
        )


def _layer_seed(seed: int, layer: int) -> int:
    """A generator's seed such that neighbouring seeds and layers share no random numbers."""
    digest = hashlib.sha256(f"fourier coefficients, seed {seed}, layer {layer}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
