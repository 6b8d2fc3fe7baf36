"""What an embedding is: options in a frozen dataclass, maths in methods that keep no state.

An embedding is one file: a subclass of `Embedding` whose fields are its options and whose methods
are pure functions of tensors. Defining the class registers it under its `name`; every module of
this package is found by itself, so a new file needs no other change. Files that define embeddings
or frequency transforms import torch inside functions only: a sweep is planned from the options.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fope_lab.embeddings.frequencies import Ladder

NEEDS_TORCH = ("module",)
"""Modules of this package that import torch, and define no embedding."""


@dataclass(frozen=True)
class Bounds:
    """The range of a number, for `Annotated`: checked on input and written to the JSON Schema."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The inner type's schema with the bounds set; numbers are finite."""
        schema = handler(source)
        for name in ("ge", "gt", "le", "lt"):
            bound = getattr(self, name)
            if bound is not None:
                schema[name] = bound
        if schema["type"] == "float":
            schema["allow_inf_nan"] = False
        return schema


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What an embedding is built for.

    `train_length` is the original training length in tokens, `layer` the decoder layer and `seed`
    the stage's seed; the last two only matter to embeddings that draw random numbers.
    """

    head_dim: int
    num_heads: int
    num_kv_heads: int
    train_length: int
    layer: int = 0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Tensors:
    """The tensors that an embedding starts from, each under its attribute name in the module.

    `constants` follow from the options and are computed again on loading; `drawn` are frozen random
    tensors, which the checkpoint stores; `learned` are parameters.
    """

    constants: Mapping[str, Tensor] = field(default_factory=dict)
    drawn: Mapping[str, Tensor] = field(default_factory=dict)
    learned: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """A position embedding that does nothing; a subclass replaces the methods of its mechanism.

    Class attributes say what a subclass does: `rotates` (it has `tables`), `biases` (it has
    `bias`) and `shift_invariant` (scores depend on position differences only).
    """

    name: ClassVar[str]
    rotates: ClassVar[bool] = False
    biases: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = True

    def __init_subclass__(cls, *, name: str) -> None:
        cls.name = name
        _register(_EMBEDDINGS, cls)

    @property
    def per_layer(self) -> bool:
        """Whether each layer has tensors of its own; otherwise all layers share one module."""
        return False

    def problems(self, shape: Shape) -> Iterator[str]:
        """What makes these options unusable at `shape`, a sentence each. Torch-free."""
        if shape.num_heads % shape.num_kv_heads:
            yield (
                f"num_heads {shape.num_heads} is not divisible by num_kv_heads {shape.num_kv_heads}"
            )

    def tensors(self, shape: Shape) -> Tensors:
        """The tensors to start from, on the CPU; random ones drawn from the shape's seed."""
        return Tensors()

    def attention_factor(self, shape: Shape) -> float:
        """Scale of rotated queries and of rotated keys; scores scale with its square."""
        return 1.0

    def tables(self, tensors: Mapping[str, Tensor], positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines that turn pair i, the dimensions i and i + head_dim/2.

        For positions (length,) or (batch, length): float32 of shape (…, length, head_dim/2), or
        (…, num_kv_heads, length, head_dim/2) with `tables_per_head`.
        """
        raise NotImplementedError

    @property
    def tables_per_head(self) -> bool:
        """Whether `tables` differ between key-value heads."""
        return False

    def bias(
        self, tensors: Mapping[str, Tensor], query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        """What is added to attention logits: float32 (…, num_heads, queries, keys)."""
        raise NotImplementedError

    def embed(self, tensors: Mapping[str, Tensor], hidden: Tensor, positions: Tensor) -> Tensor:
        """Token embeddings (batch, length, width) with absolute positions added."""
        return hidden

    def positions(self, length: int, *, offset: int, device: torch.device | None) -> Tensor:
        """Positions (length,) of a sequence whose first token is number `offset`."""
        import torch

        return torch.arange(offset, offset + length, device=device)


@dataclass(frozen=True, kw_only=True)
class FrequencyTransform:
    """A pure function from one ladder of frequencies to another (see `frequencies.Ladder`)."""

    name: ClassVar[str]

    def __init_subclass__(cls, *, name: str) -> None:
        cls.name = name
        _register(_TRANSFORMS, cls)

    def apply(self, ladder: Ladder) -> Ladder:
        """The ladder after this transform."""
        raise NotImplementedError


def canonical(definition: Embedding | FrequencyTransform) -> dict[str, Any]:
    """The shortest composition that describes a definition: options at their default left out."""
    composition: dict[str, Any] = {"type": definition.name}
    for option in fields(definition):
        value = getattr(definition, option.name)
        if value != option.default:
            composition[option.name] = (
                [canonical(part) for part in value] if isinstance(value, tuple) else value
            )
    return composition


_EMBEDDINGS: dict[str, type[Embedding]] = {}
_TRANSFORMS: dict[str, type[FrequencyTransform]] = {}


def _register(registry: dict[str, Any], cls: type) -> None:
    name = cls.name  # type: ignore[attr-defined]
    taken = registry.get(name)
    if taken is not None and (taken.__module__, taken.__qualname__) != (
        cls.__module__,
        cls.__qualname__,
    ):
        raise ValueError(f"{name!r} is already the name of {taken.__module__}.{taken.__qualname__}")
    registry[name] = cls


@functools.cache
def _discover() -> None:
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in NEEDS_TORCH:
            importlib.import_module(f"{__package__}.{module.name}")


def embedding_types() -> Mapping[str, type[Embedding]]:
    """Every embedding by the name of its mechanism."""
    _discover()
    return _EMBEDDINGS


def transform_types() -> Mapping[str, type[FrequencyTransform]]:
    """Every frequency transform by name."""
    _discover()
    return _TRANSFORMS
