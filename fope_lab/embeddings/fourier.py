"""Fourier position embedding: every rotating pair follows a series of all kept frequencies.

Hua et al., "Fourier Position Embedding", arXiv 2412.17739, Eq. 11–13: pair m is multiplied by
e^{iω_m n} + Σ_ω a_ω e^{iωn}, with separate coefficients for cosines and sines. The series acts on
queries and on keys at their own positions, as in the paper's listing, so that scores are not
exactly functions of position differences.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import Named, Shape, Tensors, generator
from fope_lab.embeddings.frequencies import rope_ladder
from fope_lab.embeddings.rotary import STILL_SIN, Rotary, as_tensor, cos_sin_at, transformed

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FourierSeries:
    """The rows and columns of the coefficient matrices (heads, frequencies, pairs).

    `frequencies` are the rows, in radians per token. `noisy` says which rows have noise: they are
    the D frequencies of the series. `own` is the row of each pair's own frequency, or None.
    """

    frequencies: tuple[float, ...]
    noisy: tuple[bool, ...]
    own: tuple[int | None, ...]
    heads: int

    @property
    def pairs(self) -> int:
        """The number of pairs that follow a series; they are the first pairs of a head."""
        return len(self.own)

    @property
    def size(self) -> int:
        """The number of frequencies of the series, D."""
        return sum(self.noisy)


DEVIATIONS: Mapping[str, Callable[[FourierSeries], float]] = {
    "xavier": lambda series: math.sqrt(2 / (series.size + series.pairs)),
    "official": lambda series: math.sqrt(2 / ((series.size + series.heads) * series.pairs)),
    "normal": lambda series: 1.0,
}
"""The standard deviation of the noise for σ = 1, by the option `noise`. `official` is Xavier's rule
as torch applies it to a tensor (heads, D, pairs), whose fans are D·pairs and heads·pairs."""


@dataclass(frozen=True, kw_only=True)
class Fourier(Rotary, name="fourier", source="Hua et al., arXiv 2412.17739, Eq. 11–13"):
    """FoPE's series over a frequency ladder; a pair of frequency 0 does not rotate (cos 1, sin 0).

    The coefficients are the identity plus noise. Unless the options say otherwise they are frozen,
    and drawn separately for each layer, for each key-value head, for cosines and for sines.
    """

    cos_sin_per_head: ClassVar[bool] = True  # heads have coefficients of their own, or share some

    sigma: Annotated[
        float, Interval(ge=0, le=100), Doc("The gain σ of the noise of the coefficients.")
    ] = 0.3
    noise: Annotated[
        Literal["xavier", "official", "normal"],
        Doc(
            "The standard deviation of the noise. xavier: σ·√(2/(D + pairs)), Xavier's rule for"
            " each matrix. official: Xavier's rule for the tensor of all heads, as in the released"
            " code. normal: σ, as the paper prints it."
        ),
    ] = "xavier"
    num_frequencies: (
        Annotated[
            int,
            Interval(ge=1, le=8192),
            Doc(
                "The number of frequencies of the series before the transforms, of which D remain"
                " (default: those of the pairs). A pair whose own frequency is not among them has"
                " it in addition, without noise."
            ),
        ]
        | None
    ) = None
    frequencies: Annotated[
        Literal["ladder", "sampled"],
        Doc(
            "The source of the frequencies of the series. ladder: RoPE's ladder, in steps that give"
            " num_frequencies. sampled: uniform samples of [0, π], the same for every seed;"
            " samples that the transforms set to 0 are drawn again."
        ),
    ] = "ladder"
    output_pairs: Annotated[
        Literal["surviving", "official"],
        Doc(
            "The pairs that follow a series. surviving: all pairs that rotate. official: at most"
            " the first head_dim/4 pairs, each with the frequency that even steps through the"
            " ladder give it."
        ),
    ] = "surviving"
    column_sums: Annotated[
        Literal["free", "listing"],
        Doc(
            "The sum of a pair's coefficients. free: as they were drawn. listing: 1, by dividing"
            " them by their sum, as in the paper's listing."
        ),
    ] = "free"
    learned: Annotated[bool, Doc("Whether the coefficients are trained.")] = False
    shared_cos_sin: Annotated[
        bool, Doc("Whether cosines and sines share coefficients, which are then cos_coef only.")
    ] = False
    shared_heads: Annotated[bool, Doc("Whether the heads of a layer share coefficients.")] = False
    shared_layers: Annotated[bool, Doc("Whether all layers share coefficients.")] = False

    def __post_init__(self) -> None:
        if self.frequencies == "sampled" and self.num_frequencies is None:
            raise ValueError("frequencies: sampled needs num_frequencies, how many to draw")
        if self.frequencies == "sampled" and self.output_pairs == "official":
            raise ValueError("output_pairs: official steps through a ladder, not through samples")

    shift_invariant = False  # the series acts on queries and on keys separately

    def problems(self, shape: Shape) -> Iterator[str]:
        if known := list(super().problems(shape)):
            yield from known
            return
        if self.fraction != 1:
            yield "fraction: a Fourier series is of whole heads"
            return
        for transform in self.transforms:
            if transform.dynamic:
                yield (
                    f"{transform.name} changes frequencies with the length of the sequence, but the"
                    " coefficients of a Fourier series belong to fixed ones"
                )
                return
            if self.frequencies == "sampled" and not transform.elementwise:
                yield f"sampled frequencies are no ladder, which {transform.name} needs"
                return
        if not self.ladder(shape).rotating or not self.series(shape).pairs:
            yield (
                f"no frequency is left for the Fourier series (head_dim {shape.head_dim},"
                f" base {self.base:g}, training length {shape.train_length})"
            )

    def series(self, shape: Shape) -> FourierSeries:
        """The frequencies of the series, and the row of each pair's own. Torch-free."""
        heads = 1 if self.shared_heads else shape.num_kv_heads
        given = self._given(shape)
        if self.output_pairs == "official":
            pairs = min(len(given), shape.head_dim // 4)
            step = math.ceil(len(given) / max(pairs, 1))
            rows = (pair * step for pair in range(pairs))
            own_rows = tuple(row if row < len(given) else None for row in rows)
            return FourierSeries(given, (True,) * len(given), own_rows, heads)
        ladder = self.ladder(shape)
        own = ladder.frequencies[: ladder.rotating]
        own_ascending, given_ascending = sorted(own), sorted(given)
        others = tuple(omega for omega in given if not _among(omega, own_ascending))
        noisy = tuple(_among(omega, given_ascending) for omega in own)
        noisy += (True,) * len(others)
        return FourierSeries(own + others, noisy, tuple(range(len(own))), heads)

    def pair_frequencies(self, shape: Shape, length: int | None = None) -> tuple[float, ...]:
        series = self.series(shape)
        own = tuple(0.0 if row is None else series.frequencies[row] for row in series.own)
        return own + (0.0,) * (shape.head_dim // 2 - series.pairs)

    def noise_deviation(self, shape: Shape) -> float:
        """The standard deviation of the noise at this shape; σ is its gain."""
        return self.sigma * DEVIATIONS[self.noise](self.series(shape))

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        if not self.learned:
            return {}
        series = self.series(shape)
        size = (series.heads, len(series.frequencies), series.pairs)
        return dict.fromkeys(self._coefficient_names, size)

    def facts(self, shape: Shape) -> Mapping[str, float]:
        return {
            "coefficient_noise_std": self.noise_deviation(shape),
            "num_frequencies": self.num_frequencies or shape.head_dim // 2,
            "series_frequencies": self.series(shape).size,
        }

    def tensors(self, shape: Shape) -> Tensors:
        """The constants `inv_freq` (head_dim/2,), `series_freq` (frequencies,) and coefficients.

        `cos_coef` and `sin_coef` are (heads, frequencies, pairs): a column holds the series of a
        pair, with the identity.
        """
        import torch

        series = self.series(shape)
        rng = generator("fourier coefficients", shape)
        noisy = torch.tensor(series.noisy, device="cpu")[:, None]
        identity = torch.zeros(len(series.frequencies), series.pairs, device="cpu")
        for pair, row in enumerate(series.own):
            if row is not None:
                identity[row, pair] = 1.0

        def coefficients() -> Tensor:
            size = (series.heads, *identity.shape)
            noise = torch.randn(size, generator=rng, dtype=torch.float32, device="cpu")
            return identity + self.noise_deviation(shape) * noise * noisy

        drawn = {name: coefficients() for name in self._coefficient_names}
        constants = {
            "inv_freq": as_tensor(self.pair_frequencies(shape)),
            "series_freq": as_tensor(series.frequencies),
        }
        if self.learned:
            return Tensors(constants=constants, learned=drawn)
        return Tensors(constants=constants, drawn=drawn)

    def cos_sin(self, shape: Shape, tensors: Named, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The cosine and sine series at each position, float32 (…, heads, length, head_dim/2)."""
        import torch

        cos_coef = tensors["cos_coef"]
        sin_coef = tensors.get("sin_coef", cos_coef)
        if self.column_sums == "listing":
            cos_coef, sin_coef = (c / c.sum(dim=-2, keepdim=True) for c in (cos_coef, sin_coef))
        cos, sin = cos_sin_at(tensors["series_freq"], positions)
        still = (0, shape.head_dim // 2 - cos_coef.shape[-1])
        return (
            torch.nn.functional.pad(cos[..., None, :, :] @ cos_coef, still, value=1.0),
            torch.nn.functional.pad(
                sin[..., None, :, :] @ sin_coef, still, value=STILL_SIN[self.below_floor]
            ),
        )

    @property
    def _coefficient_names(self) -> tuple[str, ...]:
        return ("cos_coef",) if self.shared_cos_sin else ("cos_coef", "sin_coef")

    def _given(self, shape: Shape) -> tuple[float, ...]:
        """The frequencies that the options give the series, from fast to slow."""
        if self.frequencies == "sampled":
            return self._sampled(shape)
        *_, ladder = self.ladders(shape, steps=self.num_frequencies)
        return ladder.frequencies[: ladder.rotating]

    def _sampled(self, shape: Shape) -> tuple[float, ...]:
        """Draw num_frequencies samples of [0, π] that the transforms keep, from fast to slow."""
        assert self.num_frequencies is not None  # see __post_init__
        rng = random.Random("fourier frequencies")
        ladder = rope_ladder(2, base=self.base, train_length=shape.train_length)
        kept: list[float] = []
        while len(kept) < self.num_frequencies:
            sample = replace(ladder, frequencies=(rng.uniform(0, math.pi),))
            *_, result = transformed(sample, self.transforms)
            kept += result.frequencies[: result.rotating]
        return tuple(sorted(kept, reverse=True))


def _among(omega: float, ascending: Sequence[float]) -> bool:
    """Whether a frequency is one of some others, but for rounding."""
    at = bisect.bisect_left(ascending, omega)
    near = ascending[max(0, at - 1) : at + 1]
    return any(math.isclose(omega, other, rel_tol=1e-9) for other in near)
