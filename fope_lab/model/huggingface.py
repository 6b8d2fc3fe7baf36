"""Models in the format of Hugging Face's Llama family: their config.json and their weights.

Reading a configuration needs no torch. A missing field has the default of its class in
transformers. A feature that the decoder does not have is an error, so that a model is read as
transformers reads it, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fope_lab.embeddings.base import EmbeddingError, Shape, check_definition
from fope_lab.embeddings.frequencies import HfRope, hf_transforms
from fope_lab.embeddings.rotary import Rotary
from fope_lab.embeddings.spec import parse_embedding
from fope_lab.model.checkpoint_files import (
    CheckpointConfig,
    CheckpointError,
    ConfigSource,
    read_weights,
    weight_files,
)
from fope_lab.model.config import ModelConfig

if TYPE_CHECKING:
    from torch import Tensor


Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Family:
    """How a model class of transformers differs from Llama.

    `defaults` are the values of fields that a config.json may omit. `activations` are our names of
    feed-forwards by those of transformers. With `shifted_gains` the gain of a norm is 1 + weight.
    """

    architecture: str
    defaults: Json
    activations: Mapping[str, Literal["swiglu", "geglu"]] = field(
        default_factory=lambda: {"silu": "swiglu", "gelu_pytorch_tanh": "geglu"}
    )
    scale_embeddings: bool = False
    shifted_gains: bool = False


LLAMA = {
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
FAMILIES: Mapping[str, Family] = {
    "llama": Family(architecture="LlamaForCausalLM", defaults=LLAMA),
    "mistral": Family(
        architecture="MistralForCausalLM",
        defaults=LLAMA
        | {"num_key_value_heads": 8, "max_position_embeddings": 131_072, "sliding_window": 4096},
    ),
    "gemma": Family(
        architecture="GemmaForCausalLM",
        defaults={
            **LLAMA,
            "num_key_value_heads": 16,
            "head_dim": 256,
            "hidden_act": "gelu_pytorch_tanh",
            "max_position_embeddings": 8192,
            "tie_word_embeddings": True,
        },
        # Gemma's first releases say gelu and mean the tanh approximation; so does transformers.
        activations={"gelu_pytorch_tanh": "geglu", "gelu": "geglu"},
        scale_embeddings=True,
        shifted_gains=True,
    ),
}
"""The families by `model_type`, with the defaults of transformers 5."""

REFUSED: Mapping[str, tuple[Any, ...]] = {
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "sliding_window": (None,),
    "partial_rotary_factor": (None, 1),
    "use_bidirectional_attention": (False, None),
    "quantization_config": (None,),
}
"""Fields of features that the decoder does not have, with the values that switch them off."""

SIZES = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
}
"""The sizes that every config.json has: the names in transformers by our names."""


def family_of(description: Json, where: str) -> Family:
    """The family of a config.json. Raises CheckpointError for an unknown family."""
    family = FAMILIES.get(str(description.get("model_type")))
    architectures = description.get("architectures") or []
    if family is None or architectures not in ([], [family.architecture]):
        named = architectures if isinstance(architectures, list) else [architectures]
        found = ", ".join(map(str, named)) or f"model_type {description.get('model_type')}"
        allowed = ", ".join(known.architecture for known in FAMILIES.values())
        raise CheckpointError(f"{where}: architectures: found {found} (allowed: {allowed})")
    return family


def read_huggingface_config(description: Json, source: ConfigSource) -> CheckpointConfig:
    """The configuration in a config.json.

    `train_length` is the length in tokens from which the rope scaling starts, `context_length` the
    length that it reaches. Raises CheckpointError with every field that is wrong.
    """
    try:
        return _read(description, source)
    except CheckpointError:
        raise
    except KeyError as error:
        raise CheckpointError(f"{source.config}: {error} is missing") from None
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        reason = "; ".join(str(error).splitlines())
        raise CheckpointError(f"{source.config}: {reason}") from None


def _read(description: Json, source: ConfigSource) -> CheckpointConfig:
    family = family_of(description, source.config)
    given = {name: value for name, value in description.items() if value is not None}
    # None means that there is no sliding window; in other fields it means the default.
    explicit = {"sliding_window"} & description.keys()
    fields = {**family.defaults, **given, **{name: description[name] for name in explicit}}
    rope = HfRope.of_config(fields)
    problems = [*_refused(fields, rope), *_wrong_values(fields)]
    activation = fields["hidden_act"]
    if activation not in family.activations:
        problems.append(_problem("hidden_act", activation, *family.activations))
    # Versions and classes of transformers differ in which of the two names wins.
    other = fields.get("hidden_activation", activation)
    if family.activations.get(other, other) != family.activations.get(activation, activation):
        problems.append(_problem("hidden_activation", other, f"hidden_act's {activation}"))
    if str(rope.rope_type) not in hf_transforms():
        problems.append(_problem("rope_type", rope.rope_type, *hf_transforms()))
    if problems:
        raise CheckpointError(f"{source.config}: {'; '.join(problems)}")
    sizes = {ours: fields[theirs] for ours, theirs in SIZES.items()}
    model = ModelConfig(
        **sizes,
        head_dim=fields.get("head_dim", sizes["hidden_size"] // sizes["num_heads"]),
        num_kv_heads=fields.get("num_key_value_heads", sizes["num_heads"]),
        tie_embeddings=fields["tie_word_embeddings"],
        norm_eps=float(fields["rms_norm_eps"]),
        feed_forward=family.activations[activation],
        scale_embeddings=family.scale_embeddings,
    )
    composition, original_length = Rotary.from_hf(rope)
    try:
        embedding = parse_embedding(composition)
        check_definition(embedding, Shape(**model.head_sizes, train_length=original_length))
    except EmbeddingError as error:
        raise ValueError(f"rope parameters {dict(rope.parameters)}: {error}") from None
    return CheckpointConfig(
        model=model,
        embedding=embedding,
        train_length=original_length,
        context_length=rope.max_length,
        tokenizer=source.tokenizer,
    )


def _refused(fields: Json, rope: HfRope) -> Iterator[str]:
    transform = hf_transforms().get(str(rope.rope_type))
    read = () if transform is None else transform.hf_reads
    for name, allowed in REFUSED.items():
        found = rope.parameters.get(name, fields.get(name))
        if found not in allowed and name not in read:
            yield _problem(name, found, *allowed)
    kinds = fields.get("layer_types", ())
    if other := [kind for kind in kinds if kind != "full_attention"]:
        yield _problem("layer_types", other[0], "full_attention")
    if nested := [name for name, value in rope.parameters.items() if isinstance(value, Mapping)]:
        yield f"rope_parameters: found one set for {nested[0]} (allowed: one for all layers)"


def _wrong_values(fields: Json) -> Iterator[str]:
    optional = ("num_key_value_heads", "head_dim")
    for name in (*SIZES.values(), "max_position_embeddings", *optional):
        value = fields.get(name)
        if value is None and name in optional:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            found = "is missing" if value is None else f"found {value!r}"
            yield f"{name}: {found} (allowed: a whole number from 1)"
    if not isinstance(fields["tie_word_embeddings"], bool):
        yield _problem("tie_word_embeddings", fields["tie_word_embeddings"], True, False)
    if not 0 < float(fields["rms_norm_eps"]) < 1:
        yield _problem("rms_norm_eps", fields["rms_norm_eps"], "a number between 0 and 1")


def _problem(name: str, found: Any, *allowed: Any) -> str:
    words = {None: "null", True: "true", False: "false"}

    def word(value: Any) -> str:
        return words[value] if value is None or isinstance(value, bool) else str(value)

    return f"{name}: found {word(found)} (allowed: {', '.join(map(word, allowed))})"


HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"
PREFIX = "model."
"""The prefix of the names of tensors, except in files of the model without a head."""
DERIVED = ".rotary_emb.inv_freq"
"""The suffix of frequencies, which early versions of transformers stored. The configuration
determines them."""


def read_huggingface_weights(
    directory: Path, description: Mapping[str, Any], config: CheckpointConfig
) -> dict[str, Tensor]:
    """Read the tensors under the names of `Decoder.untied_state`, without a position embedding's.

    They have the dtype of the files, except that gains to which 1 is added are float32. After
    `load_model` has widened them, logits equal those of transformers with dtype=float32. Raises
    CheckpointError for weights that are quantised, duplicate or contradict the configuration.
    """
    import torch

    shifted = family_of(description, str(directory)).shifted_gains
    weights: dict[str, Tensor] = {}
    for path in weight_files(directory):
        for name, tensor in read_weights(path).items():
            if name.endswith(DERIVED):
                continue
            if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
                raise CheckpointError(
                    f"{path}: {name} is {tensor.dtype}: quantised weights are not supported"
                )
            own = name.removeprefix(PREFIX)
            if own in weights:
                raise CheckpointError(f"{path}: {name} occurs twice, with and without {PREFIX}")
            gain = shifted and name.endswith("norm.weight")
            weights[own] = tensor.to(torch.float32) + 1.0 if gain else tensor
    if config.model.tie_embeddings and HEAD in weights:
        head = weights.pop(HEAD)
        embedding = weights.setdefault(EMBEDDING, head)  # either of the two names may be stored
        if not torch.equal(head.to(torch.float32), embedding.to(torch.float32)):
            raise CheckpointError(
                f"{directory}: tie_word_embeddings is true, but {HEAD} is not the input embedding"
            )
    return weights
