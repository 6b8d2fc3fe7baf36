"""Embeddings that rotate: their frequencies in float64, and their effect on scores."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Floats
from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import FieldPath, Problem
from fope_lab.data.problems import DataError
from fope_lab.embeddings import EMBEDDINGS, Embedding, EmbeddingError, Shape, parse_embedding
from fope_lab.embeddings.base import check_definition

if TYPE_CHECKING:
    from fope_lab.embeddings.module import PositionEmbedding


# Options of several analyses.
Preset = Annotated[str, Doc("The preset of the embedding.")]
HeadDim = Annotated[int, Interval(ge=2), Doc("The dimensions of a head.")]
Base = Annotated[float, Interval(gt=1), Doc("The base of RoPE's frequencies (θ).")]
TrainLength = Annotated[int, Interval(ge=2), Doc("The trained length, in tokens.")]
Positions = Annotated[int, Interval(ge=3), Doc("The number of positions, in tokens.")]
Distances = Annotated[
    int, Interval(ge=16), Doc("The trained length in tokens, and the number of distances.")
]


@dataclass(frozen=True)
class Rotation:
    """The rotation of a head's pairs: `frequencies` (head_dim/2,) in radians per token, 0 where a
    pair does not rotate; `spec` describes the embedding, and `definition` is what it stands for."""

    spec: Mapping[str, Any]
    definition: Embedding
    shape: Shape
    frequencies: Floats

    @property
    def wavelengths(self) -> Floats:
        """The tokens of a full turn (head_dim/2,), infinite where a pair does not rotate."""
        with np.errstate(divide="ignore"):
            return 2 * np.pi / self.frequencies

    @functools.cached_property
    def module(self) -> PositionEmbedding:
        from fope_lab.embeddings.module import PositionEmbedding

        return PositionEmbedding(self.definition, self.shape)

    def turned(self, vector: Floats, positions: NDArray[np.int64]) -> Floats:
        """Rotate a vector (head_dim,) to each of the positions n, Rⁿ·vector: (positions,
        head_dim)."""
        import torch

        x = torch.from_numpy(vector).expand(1, 1, len(positions), -1)
        with torch.inference_mode():
            return self.module.rotate(x, x, torch.from_numpy(positions))[0][0, 0].numpy()


def rotation(
    name: str,
    *,
    head_dim: int,
    train_length: int,
    base: float,
    factor: float | None = None,
    at: FieldPath = ("embedding",),
) -> Rotation:
    """Return the rotation of a preset at these sizes; `factor` (s) is for presets that need it.

    Raises DataError at the option `at`, for an unknown preset, sizes that don't fit it, and an
    embedding that rotates nothing.
    """
    shape = Shape(head_dim=head_dim, num_heads=1, num_kv_heads=1, train_length=train_length)
    try:
        spec: dict[str, Any] = {"type": name}
        known = EMBEDDINGS.entries.get(name)  # without one, parsing raises
        if known and "base" in known.options:
            spec["base"] = base
        if known and "factor" in known.required:
            if factor is None:
                message = f"found {name!r}, which needs a factor, and this analysis sets none"
                raise DataError(Problem(at, message))
            spec["factor"] = factor
        definition = parse_embedding(spec)
        check_definition(definition, shape)
    except EmbeddingError as error:
        raise DataError([replace(problem, path=at) for problem in error.problems]) from error
    frequencies = np.array(definition.pair_frequencies(shape), np.float64)
    if not frequencies.any():
        raise DataError(Problem(at, f"found {name!r}, needs an embedding that rotates"))
    return Rotation(spec, definition, shape, frequencies)


class OneRotation:
    """The options of analyses of a single rotating embedding; `length` is the trained length and
    the number of distances. Options that can't be built raise DataError."""

    embedding: str
    head_dim: int
    base: float
    length: int

    def __post_init__(self) -> None:
        self.rotation()

    def rotation(self) -> Rotation:
        """Return the rotation that the options describe."""
        return rotation(
            self.embedding, head_dim=self.head_dim, train_length=self.length, base=self.base
        )

    def turned(self) -> NDArray[np.complex128]:
        """Return the `turns` of a head: (head_dim/2, length)."""
        return turns(self.rotation().module, self.length)[0]


def undertrained(frequencies: Floats, train_length: int) -> NDArray[np.bool_]:
    """Return a mask of the pairs that rotate but complete no turn in `train_length` tokens: those
    below the floor 2π/N of Hua et al. (FoPE), arXiv 2412.17739, §3.3."""
    return (frequencies > 0) & (frequencies < 2 * np.pi / train_length)


def as_complex(vectors: Floats) -> NDArray[np.complex128]:
    """Return the pairs of vectors (…, head_dim) as complex numbers (…, head_dim/2): the real parts
    come first, then the imaginary parts."""
    real, imaginary = np.split(vectors, 2, axis=-1)
    return np.asarray(real + 1j * imaginary)


def turns(embedding: PositionEmbedding, length: int) -> NDArray[np.complex128]:
    """Return the factors of a rotation in scores at distances 0 … length − 1:
    (heads, head_dim/2, length), complex.

    As a complex number, pair i is dimensions i and i + head_dim/2; a query and a key score
    Re Σ q̄·k·turn. For RoPE, the turn is e^{−iωn}. The query is at position length − 1, which
    matters for series that act on queries and keys separately. `heads` is 1 or the number of
    key-value heads. Raises DataError if the embedding rotates nothing.
    """
    import torch

    device = next((tensor.device for tensor in embedding.buffers()), None)
    with torch.inference_mode():
        cos_sin = embedding.cos_sin(torch.arange(length, device=device))
    if cos_sin is None:
        raise DataError(f"{embedding.definition.name} rotates nothing")
    cos, signed_sin = (table.double().cpu().numpy() for table in cos_sin)
    half = cos.shape[-1] // 2
    angle = cos[..., :half] + 1j * signed_sin[..., half:]  # (heads, length, pairs)
    turned = angle[..., -1:, :].conj() * angle
    return np.ascontiguousarray(turned[..., ::-1, :].swapaxes(-1, -2))
