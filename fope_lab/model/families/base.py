"""What a family of transformers' models is: how its config.json says what ours says, and the way
back.

A family reads each field of its class, or refuses it by name, so that a model is read as
transformers reads it, or not at all. It writes what it would read: whatever the class cannot say
comes back changed, and is named in an error. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from fope_lab.config.named_types import NamedTypes
from fope_lab.embeddings.base import (
    Embedding,
    EmbeddingError,
    LayerPlan,
    PatternLayer,
    Shape,
    check_definition,
)
from fope_lab.embeddings.frequencies import HfRope, hf_transforms
from fope_lab.embeddings.rotary import Rotary
from fope_lab.embeddings.spec import parse_embedding
from fope_lab.embeddings.within import patterned
from fope_lab.model.checkpoint_files import CheckpointConfig, CheckpointError, ConfigSource
from fope_lab.model.config import ModelConfig
from fope_lab.model.families.fields import INERT, Fields, Json
from fope_lab.model.families.tensors import LLAMA, TensorMap

LLAMA_SIZES: Mapping[str, str] = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
}
"""The sizes that have no default in most files: the names in transformers by ours."""
LLAMA_DEFAULTS: Json = {
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}


MOST_LAYERS = 10_000
"""Of a file with more, one of whose numbers is wrong, a list of layers would fill the memory."""


class Layer(NamedTuple):
    """What one layer attends with: a composition, and its window in tokens."""

    embedding: Mapping[str, Any]
    window: int | None = None


class Positions(NamedTuple):
    """The layers of a model, its original training length, and the length that it reaches."""

    layers: Sequence[Layer]
    train_length: int
    context_length: int


FAMILIES: NamedTypes[Family] = NamedTypes(
    "fope_lab.model.families", skip=("base", "fields", "tensors", "layers")
)
"""Every family by its `model_type`."""


class Family:
    """A model class of transformers. A subclass, which a file of this package or a plug-in defines,
    says how it differs from Llama.

    `options` are the values of ModelConfig that every model of the family has; `activations` are
    our feed-forwards by the names of transformers. `inert` are fields without an effect on logits.
    """

    name: ClassVar[str]
    """Its `model_type`."""
    architecture: ClassVar[str]
    prefix: ClassVar[str] = "model."
    """That of the names of tensors, but for the head, and but in files of a model without one."""
    defaults: ClassVar[Json] = LLAMA_DEFAULTS
    sizes: ClassVar[Mapping[str, str]] = LLAMA_SIZES
    activation: ClassVar[str] = "hidden_act"
    activations: ClassVar[Mapping[str, str]] = {"silu": "swiglu", "gelu_pytorch_tanh": "geglu"}
    dropouts: ClassVar[tuple[str, ...]] = ()
    """The fields that together are our dropout, if the class drops what we drop."""
    norm_eps: ClassVar[str] = "rms_norm_eps"
    options: ClassVar[Mapping[str, Any]] = {}
    tensors: ClassVar[TensorMap] = LLAMA
    dropped: ClassVar[tuple[str, ...]] = (".rotary_emb.inv_freq",)
    """The endings of the names of tensors that a file may have, and that follow from the rest."""
    inert: ClassVar[frozenset[str]] = frozenset()
    begins: ClassVar[bool | None] = None
    """Whether models of the family are trained on texts that begin with a token of their own; None
    if some are."""

    def __init_subclass__(cls, *, name: str, architecture: str) -> None:
        cls.name, cls.architecture = name, architecture
        FAMILIES.register(name, cls)

    def model(self, f: Fields) -> dict[str, Any]:
        """The options of a ModelConfig that a file says, beside those of all models."""
        sizes = {ours: f.whole(theirs) for ours, theirs in self.sizes.items()}
        if sizes["num_layers"] > MOST_LAYERS:
            found, allowed = sizes["num_layers"], f"up to {MOST_LAYERS:,}"
            f.refuse(self.sizes["num_layers"], found, allowed)
            sizes["num_layers"] = 1
        eps, activation = f.number(self.norm_eps), self._activation(f)
        dropout = self._dropout(f)
        return {
            **sizes,
            "num_kv_heads": f.whole("num_key_value_heads", sizes["num_heads"]),
            "head_dim": f.whole("head_dim", max(1, sizes["hidden_size"] // sizes["num_heads"])),
            "tie_embeddings": f.flag("tie_word_embeddings"),
            "norm_eps": eps,
            "feed_forward": activation,
            "dropout": dropout,
        }

    def _dropout(self, f: Fields) -> float:
        if not self.dropouts:
            f.only("attention_dropout", 0, None)
            return 0.0
        found = [float(f.get(name) or 0) for name in self.dropouts]
        if len({*found}) > 1:
            f.refuse(", ".join(self.dropouts), ", ".join(map(str, found)), "equal numbers")
        return found[0]

    def _activation(self, f: Fields) -> str:
        found = f[self.activation]
        if found not in self.activations:
            f.refuse(self.activation, found, *self.activations)
        # Versions and classes of transformers differ in which of the two names wins.
        ours, other = self.activations.get(found), f.get("hidden_activation") or found
        if self.activations.get(other, other) != (ours or found):
            f.refuse("hidden_activation", other, f"{self.activation}'s {found}")
        return ours or next(iter(self.activations.values()))

    def model_fields(self, model: ModelConfig) -> dict[str, Any]:
        """What `model` reads, as fields; what the class cannot say is not looked at."""
        activations = {ours: theirs for theirs, ours in [*self.activations.items()][::-1]}
        return {
            **{theirs: getattr(model, ours) for ours, theirs in self.sizes.items()},
            "num_key_value_heads": model.num_kv_heads,
            "head_dim": model.head_dim,
            "tie_word_embeddings": model.tie_embeddings,
            self.norm_eps: model.norm_eps,
            self.activation: activations.get(model.feed_forward, next(iter(self.activations))),
            **dict.fromkeys(self.dropouts, model.dropout),
        }

    def positions(self, f: Fields, model: ModelConfig) -> Positions:
        """What each layer attends with. By default all layers have one rotation."""
        return uniform(*rotation(f, f.rope()), layers=model.num_layers)

    def position_fields(self, plans: Sequence[LayerPlan], shape: Shape, longest: int) -> Json:
        """What `positions` reads, as fields. Raises EmbeddingError for an embedding that no class
        has."""
        return rope_fields(plans[0].embedding.to_hf(shape, longest))

    @classmethod
    def doubts(cls, description: Json) -> Iterator[str]:
        """Yield what a file of this family may not mean (check.py)."""
        return iter(())


def rope_fields(rope: HfRope) -> dict[str, Any]:
    """The fields of one rotation of all layers."""
    parameters = dict(rope.parameters)
    return {"max_position_embeddings": rope.max_length, "rope_parameters": parameters}


def rotation(f: Fields, rope: HfRope, *, partial: bool = False) -> tuple[Json, int, int]:
    """The composition of a rotation, its original length, and the length that it reaches. A part of
    each head may rotate in its own pairs only where the class has that: `partial`."""
    kind = str(rope.rope_type)
    if kind not in hf_transforms():
        f.refuse("rope_type", rope.rope_type, *hf_transforms())
        return {"type": Rotary.name}, rope.max_length, rope.max_length
    transform = hf_transforms()[kind]
    read = () if transform is None else transform.hf_reads
    share = rope.parameters.get("partial_rotary_factor")
    if share not in (None, 1) and "partial_rotary_factor" not in read and not partial:
        f.refuse("partial_rotary_factor", share, None, 1)
    if nested := [name for name, v in rope.parameters.items() if isinstance(v, Mapping)]:
        f.problems.append(
            f"rope_parameters: found one set for {nested[0]} (allowed: one for all layers)"
        )
        return {"type": Rotary.name}, rope.max_length, rope.max_length
    try:
        composition, original = Rotary.from_hf(rope)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        f.problems.append(f"rope parameters {dict(rope.parameters)}: {error}")
        return {"type": Rotary.name}, rope.max_length, rope.max_length
    return composition, original, rope.max_length


def uniform(
    composition: Json, original: int, longest: int, *, layers: int, window: int | None = None
) -> Positions:
    """All layers alike."""
    return Positions([Layer(composition, window)] * layers, original, longest)


def family_of(description: Json, where: str) -> Family:
    """The family of a config.json. Raises CheckpointError for an unknown family."""
    families = FAMILIES.all()
    family = families.get(str(description.get("model_type")))
    architectures = description.get("architectures") or []
    if family is None or architectures not in ([], [family.architecture]):
        named = architectures if isinstance(architectures, list) else [architectures]
        found = ", ".join(map(str, named)) or f"model_type {description.get('model_type')}"
        allowed = ", ".join(known.architecture for known in families.values())
        raise CheckpointError(f"{where}: architectures: found {found} (allowed: {allowed})")
    return family()


def read_family_config(description: Json, source: ConfigSource) -> CheckpointConfig:
    """What a config.json says.

    `train_length` is the length in tokens from which the rope scaling starts, `context_length` the
    length that it reaches. Raises CheckpointError with every field that is wrong.
    """
    family = family_of(description, source.config)
    f = Fields(description, family.defaults)
    try:
        f.only("quantization_config", None)
        config = _read(family, f, source)
    except CheckpointError:
        raise
    except KeyError as error:
        f.problems = f.problems or [f"{error} is missing"]
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        f.problems = f.problems or ["; ".join(str(error).splitlines())]
    # After another problem, not all that the family reads has been read.
    f.problems = f.problems or list(f.unknown(INERT | family.inert))
    if f.problems:
        raise CheckpointError(f"{source.config}: {'; '.join(f.problems)}")
    return config


def _read(family: Family, f: Fields, source: ConfigSource) -> CheckpointConfig:
    model = ModelConfig(**{**family.options, **family.model(f)})
    layers, original, longest = family.positions(f, model)
    try:
        embedding = patterned(
            [
                PatternLayer(embedding=parse_embedding(each.embedding), window=each.window)
                for each in layers
            ]
        )
        check_definition(embedding, Shape(**model.head_sizes, train_length=original))
    except EmbeddingError as error:
        raise ValueError(f"rope parameters {dict(f.rope().parameters)}: {error}") from None
    return CheckpointConfig(
        model=model,
        embedding=embedding,
        train_length=original,
        context_length=longest,
        tokenizer=source.tokenizer,
    )


def family_config(family: Family, config: CheckpointConfig) -> dict[str, Any]:
    """The config.json of a model. Raises CheckpointError, which names all that the class lacks."""
    shape = Shape(**config.model.head_sizes, train_length=config.train_length)
    written = {"model_type": family.name, "architectures": [family.architecture]}
    written |= family.model_fields(config.model)
    plans = config.embedding.layers(config.model.num_layers)
    problems: list[str] = []
    try:
        written |= family.position_fields(plans, shape, config.context_length)
    except EmbeddingError as error:
        problems = list(map(str, error.problems))
    f = Fields(written, family.defaults)
    source = ConfigSource(family.architecture, Path(), config.tokenizer)
    try:
        found = ModelConfig(**{**family.options, **family.model(f)})
        problems = [*_model_differences(config.model, found, family), *problems]
        if not problems:
            problems = list(_plan_differences(config, _read(family, f, source)))
        problems += f.problems
    except (KeyError, TypeError, ValueError) as error:
        problems += [str(error), *f.problems]
    if problems:
        whole = "; ".join(dict.fromkeys(problems))
        raise CheckpointError(f"{family.architecture} cannot express this model: {whole}")
    return written


def _model_differences(wanted: ModelConfig, found: ModelConfig, family: Family) -> Iterator[str]:
    """What a class would make of another size or option. Dropout is a matter of training."""
    for name, own in vars(wanted).items():
        if name != "dropout" and own != vars(found)[name]:
            allowed = str(vars(found)[name])
            if name == "feed_forward":
                allowed = ", ".join(dict.fromkeys(family.activations.values()))
            yield f"{name}: found {own} (allowed: {allowed})"


def _plan_differences(wanted: CheckpointConfig, found: CheckpointConfig) -> Iterator[str]:
    """The first layer in which a class would attend otherwise."""
    count = wanted.model.num_layers
    pairs = [
        zip(each.embedding.layers(count), [each.train_length] * count, strict=True)
        for each in (wanted, found)
    ]
    for number, ((own, length), (other, start)) in enumerate(zip(*pairs, strict=True)):
        if own.window != other.window:
            yield f"layer {number}: found the window {own.window} (allowed: {other.window})"
            return
        shapes = [Shape(**wanted.model.head_sizes, train_length=at) for at in (length, start)]
        if not _alike(own.embedding, other.embedding, *shapes):
            said = own.embedding.canonical()
            yield f"layer {number}: found {said} (allowed: {other.embedding.canonical()})"
            return


def _alike(own: Embedding, other: Embedding, *shapes: Shape) -> bool:
    """Whether two embeddings mean the same, though they may say lengths in another way. Those that
    are no rotations have no other options here."""
    if not (isinstance(own, Rotary) and isinstance(other, Rotary)):
        sizes = [one.longest_sequence(at) for one, at in zip((own, other), shapes, strict=True)]
        return type(own) is type(other) and sizes[0] == sizes[1]
    lengths = [shapes[0].train_length * times for times in (1, 2, 4)]
    one, two = (
        [each.ladder(shape, length) for length in lengths]
        for each, shape in zip((own, other), shapes, strict=True)
    )
    return all(
        len(a.frequencies) == len(b.frequencies)
        and all(map(_close, a.frequencies, b.frequencies))
        and _close(a.attention_factor, b.attention_factor)
        and _close(a.logit_factor, b.logit_factor)
        for a, b in zip(one, two, strict=True)
    )


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9)
