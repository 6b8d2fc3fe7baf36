"""RoPE-A: every frequency completes a whole number of cycles in the training length.

Hua et al., "Fourier Position Embedding", arXiv 2412.17739, Table 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from fope_lab.config.annotations import Doc
from fope_lab.embeddings.frequencies import FrequencyTransform, Ladder, OriginalLength


def _nearest_wavelength(cycles: float) -> float:
    fewer, more = max(math.floor(cycles), 1), math.ceil(cycles)
    return min((fewer, more), key=lambda whole: abs(1 / whole - 1 / cycles))


ROUNDINGS: Mapping[str, Callable[[float], float]] = {
    "nearest_frequency": round,
    "nearest_wavelength": _nearest_wavelength,
    "ceil": math.ceil,
    "floor": math.floor,
}


@dataclass(frozen=True, kw_only=True)
class FullCycles(
    FrequencyTransform, name="full_cycles", source="Hua et al., arXiv 2412.17739, Table 2"
):
    """Each frequency becomes the nearest 2πk/N with a whole number k ≥ 1; 0 stays 0.

    N is `original_length`, or the training length.
    """

    elementwise: ClassVar[bool] = True

    rounding: Annotated[
        Literal["nearest_frequency", "nearest_wavelength", "ceil", "floor"],
        Doc(
            "How the cycles in N tokens become the whole number k: to the nearest frequency, to the"
            " nearest wavelength, up (ceil) or down (floor)."
        ),
    ] = "nearest_frequency"
    original_length: OriginalLength | None = None

    def apply(self, ladder: Ladder) -> Ladder:
        step = 2 * math.pi / (self.original_length or ladder.train_length)
        whole = ROUNDINGS[self.rounding]

        def adjusted(place: float, omega: float) -> float:
            # A number that float64 cannot tell from a whole one must not lose or gain a cycle.
            return step * max(whole(round(omega / step, 9)), 1) if omega else 0.0

        return ladder.mapped(adjusted)
