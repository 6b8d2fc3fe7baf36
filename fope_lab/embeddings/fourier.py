"""Fourier position embedding: every rotating pair follows a series of all kept frequencies.

Hua et al., "Fourier Position Embedding", arXiv 2412.17739, Eq. 11–13: pair m is multiplied by
e^{iω_m n} + Σ_ω a_ω e^{iωn}, with coefficients of its own for the cosines and for the sines. The
series acts on queries and on keys at their own positions, as in the paper's listing, so scores are
not exactly functions of position differences (`eq13.py` has the form whose scores are).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import Shape, Tensors
from fope_lab.embeddings.ladder import rope_ladder
from fope_lab.embeddings.rng import generator
from fope_lab.embeddings.rotary import STILL_SIN, Rotary, as_tensor, cos_sin_at, transformed

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class FourierSeries:
    """What the coefficient matrices (heads, frequencies, pairs) of a Fourier embedding stand on.

    `frequencies` are the rows, in radians per token, and `noisy` says which of them have noise:
    the D frequencies of the series. `own` is the row of each pair's own frequency, or None.
    """

    frequencies: tuple[float, ...]
    noisy: tuple[bool, ...]
    own: tuple[int | None, ...]
    heads: int

    @property
    def pairs(self) -> int:
        """The pairs that follow a series; the first ones."""
        return len(self.own)

    @property
    def size(self) -> int:
        """D, the frequencies of the series."""
        return sum(self.noisy)


DEVIATIONS: Mapping[str, Callable[[FourierSeries], float]] = {
    "xavier": lambda series: math.sqrt(2 / (series.size + series.pairs)),
    "official": lambda series: math.sqrt(2 / ((series.size + series.heads) * series.pairs)),
    "normal": lambda series: 1.0,
}
"""The noise's standard deviation for σ = 1. `official` is Xavier's rule as torch applies it to a
tensor (heads, D, pairs): its fans are D·pairs and heads·pairs."""


@dataclass(frozen=True, kw_only=True)
class Fourier(Rotary, name="fourier", source="Hua et al., arXiv 2412.17739, Eq. 11–13"):
    """FoPE's series over a frequency ladder; pairs of frequency 0 do not turn (cos 1, sin 0).

    The coefficients are the identity and noise, frozen, drawn for each layer and each key-value
    head, apart for cosines and sines, unless options say otherwise.
    """

    sigma: Annotated[
        float, Interval(ge=0, le=100), Doc("the gain of the coefficients' noise, σ")
    ] = 0.3
    noise: Annotated[
        Literal["xavier", "official", "normal"],
        Doc(
            "the noise's standard deviation: σ·√(2/(D + pairs)), Xavier's rule on each matrix;"
            " official: on the tensor of all heads, as released; normal: σ, as printed"
        ),
    ] = "xavier"
    num_frequencies: (
        Annotated[
            int,
            Interval(ge=1, le=8192),
            Doc(
                "how many frequencies the series starts from, before the transforms: D are left"
                " (default: the pairs' own). A pair's own frequency that is not among them is"
                " there for that pair, without noise"
            ),
        ]
        | None
    ) = None
    frequencies: Annotated[
        Literal["ladder", "sampled"],
        Doc(
            "where num_frequencies come from: RoPE's ladder in finer steps, or drawn evenly from"
            " [0, π], the same ones for every seed; those that the transforms drop are drawn again"
        ),
    ] = "ladder"
    output_pairs: Annotated[
        Literal["surviving", "official"],
        Doc(
            "which pairs follow a series: all that rotate; official: the first head_dim/4 at most,"
            " each with the frequency that even steps through the ladder give it"
        ),
    ] = "surviving"
    column_sums: Annotated[
        Literal["free", "listing"],
        Doc("listing: each pair's coefficients are divided by their sum, as the listing does"),
    ] = "free"
    learned: Annotated[bool, Doc("whether the coefficients are trained")] = False
    shared_cos_sin: Annotated[
        bool, Doc("whether cosines and sines share coefficients (then only cos_coef is there)")
    ] = False
    shared_heads: Annotated[bool, Doc("whether the heads of a layer share coefficients")] = False
    shared_layers: Annotated[bool, Doc("whether all layers share coefficients")] = False

    def __post_init__(self) -> None:
        if self.frequencies == "sampled" and self.num_frequencies is None:
            raise ValueError("frequencies: sampled needs num_frequencies, how many to draw")
        if self.frequencies == "sampled" and self.output_pairs == "official":
            raise ValueError("output_pairs: official steps through a ladder, not through samples")

    @property
    def per_layer(self) -> bool:
        """Whether the coefficients of layers are independent."""
        return not self.shared_layers

    @property
    def shift_invariant(self) -> bool:
        """Never exactly: the series acts on queries and on keys apart."""
        return False

    @property
    def cos_sin_per_head(self) -> bool:
        """Always: each key-value head has coefficients of its own, or all have one set."""
        return True

    def problems(self, shape: Shape) -> Iterator[str]:
        """Also: no frequency for the series, transforms that a series can't take."""
        known = list(super().problems(shape))
        yield from known
        if known:
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
        """The frequencies of the series and each pair's own. Torch-free."""
        heads = 1 if self.shared_heads else shape.num_kv_heads
        given = self._given(shape)
        if self.output_pairs == "official":
            pairs = min(len(given), shape.head_dim // 4)
            step = math.ceil(len(given) / max(pairs, 1))
            rows = (pair * step for pair in range(pairs))
            return FourierSeries(
                frequencies=given,
                noisy=(True,) * len(given),
                own=tuple(row if row < len(given) else None for row in rows),
                heads=heads,
            )
        ladder = self.ladder(shape)
        own = ladder.frequencies[: ladder.rotating]
        others = tuple(omega for omega in given if not _among(omega, own))
        return FourierSeries(
            frequencies=own + others,
            noisy=tuple(_among(omega, given) for omega in own) + (True,) * len(others),
            own=tuple(range(len(own))),
            heads=heads,
        )

    def pair_frequencies(self, shape: Shape, length: int | None = None) -> tuple[float, ...]:
        """Each pair's own frequency, by its row in the identity of the coefficients."""
        series = self.series(shape)
        own = tuple(0.0 if row is None else series.frequencies[row] for row in series.own)
        return own + (0.0,) * (shape.head_dim // 2 - series.pairs)

    def noise_deviation(self, shape: Shape) -> float:
        """The standard deviation that σ, a gain, stands for at this shape."""
        return self.sigma * DEVIATIONS[self.noise](self.series(shape))

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        """The coefficients, if they are trained."""
        if not self.learned:
            return {}
        series = self.series(shape)
        size = (series.heads, len(series.frequencies), series.pairs)
        return dict.fromkeys(self._coefficient_names, size)

    def facts(self, shape: Shape) -> Mapping[str, float]:
        """The noise's standard deviation, which σ is a gain of, and D beside what was asked for."""
        asked = shape.head_dim // 2 if self.num_frequencies is None else self.num_frequencies
        return {
            "coefficient_noise_std": self.noise_deviation(shape),
            "num_frequencies": asked,
            "series_frequencies": self.series(shape).size,
        }

    def tensors(self, shape: Shape) -> Tensors:
        """`inv_freq`, the series' `series_freq` (frequencies,), `cos_coef` and `sin_coef`.

        Coefficients are (heads, frequencies, pairs): a column holds a pair's series, identity
        included.
        """
        import torch

        series = self.series(shape)
        draw = generator("fourier coefficients", shape)
        noisy = torch.tensor(series.noisy, device="cpu")[:, None]
        identity = torch.zeros(len(series.frequencies), series.pairs, device="cpu")
        for pair, row in enumerate(series.own):
            if row is not None:
                identity[row, pair] = 1.0

        def coefficients() -> Tensor:
            size = (series.heads, *identity.shape)
            noise = torch.randn(size, generator=draw, dtype=torch.float32, device="cpu")
            return identity + self.noise_deviation(shape) * noise * noisy

        drawn = {name: coefficients() for name in self._coefficient_names}
        constants = {
            "inv_freq": as_tensor(self.pair_frequencies(shape)),
            "series_freq": as_tensor(series.frequencies),
        }
        if self.learned:
            return Tensors(constants=constants, learned=drawn)
        return Tensors(constants=constants, drawn=drawn)

    def cos_sin(
        self, shape: Shape, tensors: Mapping[str, Tensor], positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The series at each position, float32 (…, heads, length, head_dim/2)."""
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
        """The frequencies that the options give the series, from fast to slow; without
        num_frequencies those of the pairs."""
        if self.frequencies == "sampled":
            return self._sampled(shape)
        *_, ladder = transformed(
            rope_ladder(
                shape.head_dim,
                base=self.base,
                train_length=shape.train_length,
                steps=self.num_frequencies,
            ),
            self.transforms,
        )
        return ladder.frequencies[: ladder.rotating]

    def _sampled(self, shape: Shape) -> tuple[float, ...]:
        """num_frequencies drawn evenly from [0, π], of those that the transforms keep."""
        assert self.num_frequencies is not None  # see __post_init__
        draw = random.Random("fourier frequencies")
        ladder = rope_ladder(2, base=self.base, train_length=shape.train_length)
        kept: list[float] = []
        while len(kept) < self.num_frequencies:
            one = replace(ladder, frequencies=(draw.uniform(0, math.pi),))
            *_, last = transformed(one, self.transforms)
            kept += last.frequencies[: last.rotating]
        return tuple(sorted(kept, reverse=True))


def _among(omega: float, frequencies: Iterable[float]) -> bool:
    return any(math.isclose(omega, other, rel_tol=1e-9) for other in frequencies)
