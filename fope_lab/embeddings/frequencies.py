"""Ladders of frequencies, the transforms from one to another, and how transformers describes them.

A ladder has one frequency a pair, from fast to slow, in radians per token. They are Python floats
(float64), so that a plan computes them without torch; modules hold them as float64 tensors. Each
transform reads and writes its own parameters of a config.json (`from_hf`, `to_hf`), in the form
that transformers 5 has in modeling_rope_utils.py. An export has this module: it uses the standard
library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.named_types import NamedTypes, given_options
from fope_lab.config.problems import Problem


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Frequencies, and the numbers that transforms compute from.

    `frequencies` are in radians per token; the 0s of pairs that do not rotate come last. `places`
    are their places in RoPE's ladder of `head_dim`: pair i is at i, and a ladder of finer steps has
    others in between. `train_length` is the original training length in tokens, `length` that of
    the current sequence. `attention_factor` multiplies rotated queries and keys, and
    `logit_factor` the logits. Raises ValueError if a 0 comes before another frequency.
    """

    frequencies: tuple[float, ...]
    places: tuple[float, ...]
    head_dim: int
    base: float
    train_length: int
    length: int
    attention_factor: float = 1.0
    logit_factor: float = 1.0

    def __post_init__(self) -> None:
        if any(self.frequencies[self.rotating :]):
            raise ValueError(f"a pair rotates after one that does not: {self.frequencies}")

    @property
    def rotating(self) -> int:
        """The number of frequencies that are not 0."""
        still = (pair for pair, omega in enumerate(self.frequencies) if omega == 0)
        return next(still, len(self.frequencies))

    def mapped(self, frequency: Callable[[float, float], float]) -> Ladder:
        """Replace the frequencies by a function of each place and the frequency there."""
        pairs = zip(self.places, self.frequencies, strict=True)
        return replace(self, frequencies=tuple(frequency(place, omega) for place, omega in pairs))


def rope_ladder(
    head_dim: int,
    *,
    base: float,
    train_length: int,
    length: int | None = None,
    steps: int | None = None,
) -> Ladder:
    """RoPE's frequencies ω_i = base^(−2i/head_dim) (RoFormer, arXiv 2104.09864, §3.2.2).

    `length` is the length of the current sequence in tokens, by default the training length.
    `steps` is the number of frequencies, by default head_dim/2; another number divides the same
    range into finer or coarser steps.
    """
    steps = head_dim // 2 if steps is None else steps
    places = tuple(step * head_dim / (2 * steps) for step in range(steps))
    return Ladder(
        frequencies=tuple(base ** -(2 * place / head_dim) for place in places),
        places=places,
        head_dim=head_dim,
        base=base,
        train_length=train_length,
        length=length or train_length,
    )


BESIDE = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
"""The parameters that earlier versions of transformers have beside `rope_scaling`."""


@dataclass(frozen=True, kw_only=True)
class HfRope:
    """The `rope_parameters` of a config.json, and its `max_position_embeddings` in tokens."""

    parameters: Mapping[str, Any]
    max_length: int

    @classmethod
    def of_config(cls, fields: Mapping[str, Any]) -> HfRope:
        """The rotation of a config.json in either spelling.

        Transformers 5 has all parameters in `rope_parameters`. Earlier versions have `rope_theta`
        beside `rope_scaling`, which wins over `rope_parameters` where a file has both.
        """
        beside = {name: fields[name] for name in BESIDE if name in fields}
        inside = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
        original = "original_max_position_embeddings"
        wins = {original: beside[original]} if original in beside else {}  # as in transformers
        parameters = {"rope_theta": 10_000.0, **beside, **inside, **wins}
        return cls(parameters=parameters, max_length=fields["max_position_embeddings"])

    @property
    def rope_type(self) -> Any:
        """The name of the scaling as the file has it; "default" where it has none."""
        return self.parameters.get("rope_type", self.parameters.get("type", "default"))

    @property
    def original_length(self) -> int:
        """The tokens that a scaling starts from: the given ones, or `max_length`."""
        return self.parameters.get("original_max_position_embeddings") or self.max_length

    def updated(self, **parameters: Any) -> HfRope:
        return replace(self, parameters={**self.parameters, **parameters})


Factor = Annotated[
    float,
    Interval(ge=1, le=1e6),
    Doc("The factor s by which the context is longer than the original."),
]
OriginalLength = Annotated[
    int, Interval(ge=1), Doc("The original length in tokens (default: the training length).")
]


TRANSFORM_TYPES: NamedTypes[FrequencyTransform] = NamedTypes(
    "fope_lab.embeddings", skip=("module", "scores")
)
"""Every frequency transform by name."""


@dataclass(frozen=True, kw_only=True)
class FrequencyTransform:
    """A pure function from one ladder of frequencies to another; see `Embedding` for the rest."""

    name: ClassVar[str]
    source: ClassVar[str]
    version: ClassVar[int] = 1
    key_name: ClassVar[str]
    """What a stage's key calls it, beside a version other than 1."""
    elementwise: ClassVar[bool] = False
    """Whether a new frequency depends only on the old frequency, and not on its place."""
    dynamic: ClassVar[bool] = False
    """Whether the result depends on the current length of the sequence."""
    hf_types: ClassVar[tuple[str, ...]] = ()
    """The values of transformers' `rope_type` that `from_hf` reads."""
    hf_reads: ClassVar[tuple[str, ...]] = ()
    """Parameters of those types that a config.json may not have with any other type."""

    def __init_subclass__(cls, *, name: str, source: str) -> None:
        cls.name, cls.source = name, source
        cls.key_name = f"transform {name}"
        TRANSFORM_TYPES.register(name, cls)

    def canonical(self) -> dict[str, Any]:
        return {"type": self.name, **given_options(self)}

    @property
    def may_keep_all(self) -> bool:
        """Whether these options may leave every frequency as it is, which is otherwise an error."""
        return False

    def problems(self, ladder: Ladder) -> Iterator[str]:
        """Yield a sentence for every reason why these options cannot be used on a ladder."""
        return iter(())

    def apply(self, ladder: Ladder) -> Ladder:
        """The ladder with the frequencies that this transform gives."""
        raise NotImplementedError

    @classmethod
    def from_hf(cls, rope: HfRope) -> tuple[Mapping[str, Any] | None, int]:
        """The options of this transform, None if no frequency changes, and the original length.

        The `rope_type` is one of `hf_types`. Raises KeyError for a missing parameter, ValueError or
        TypeError for a parameter that is not a number.
        """
        raise NotImplementedError

    def hf_problems(self) -> Iterator[Problem]:
        """Yield a problem for every option that transformers cannot express."""
        return iter(())

    def to_hf(self, ladder: Ladder, rope: HfRope) -> HfRope:
        """Add this transform to `rope`, the form that transformers has of `ladder`.

        A transform without this method has no form in transformers.
        """
        raise NotImplementedError


def hf_transforms() -> Mapping[str, type[FrequencyTransform] | None]:
    """The transform that each `rope_type` of transformers means; None for "default"."""
    kinds = {name: kind for kind in TRANSFORM_TYPES.all().values() for name in kind.hf_types}
    return {"default": None, **kinds}
