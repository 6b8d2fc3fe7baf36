"""A decoder as transformers' own LlamaForCausalLM, where that has all that the decoder has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fope_lab.embeddings.base import Embedding, FrequencyTransform, canonical
from fope_lab.embeddings.interpolate import Interpolate
from fope_lab.embeddings.ntk import BASE_SCALINGS, DynamicNtk, Ntk
from fope_lab.embeddings.rotary import Rotary
from fope_lab.embeddings.spec import parse_embedding
from fope_lab.embeddings.yarn import Yarn
from fope_lab.model.checkpoint_config import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.model.decoder import Decoder

ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu_pytorch_tanh"}
NEEDED = {"qk_norm": "none", "scale_embeddings": False}
"""Of a ModelConfig."""


def llama_description(model: Decoder, context_length: int) -> dict[str, Any]:
    """The config.json. Raises CheckpointError naming what Llama does not have."""
    config = model.config
    problems = [
        f"{name}: found {getattr(config, name)} (allowed: {allowed})"
        for name, allowed in NEEDED.items()
        if getattr(config, name) != allowed
    ]
    if config.feed_forward not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        problems.append(f"feed_forward: found {config.feed_forward} (allowed: {allowed})")
    definition = parse_embedding(model.embedding)
    problems += _problems(definition)
    if problems:
        raise CheckpointError(f"this is no LlamaForCausalLM: {'; '.join(problems)}")
    assert isinstance(definition, Rotary)  # the others are problems
    rope = {"rope_type": "default", "rope_theta": definition.base}
    longest = context_length
    for transform in definition.transforms:
        rope |= SCALINGS[type(transform)](transform, definition.base, model)
        if isinstance(transform, DynamicNtk):  # which transformers starts from there
            longest = transform.original_length or model.train_length
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "dtype": str(model.embed_tokens.weight.dtype).removeprefix("torch."),
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": ACTIVATIONS[config.feed_forward],
        "max_position_embeddings": longest,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "rope_parameters": rope,
    }


def llama_weights(model: Decoder) -> dict[str, Tensor]:
    """The tensors under transformers' names."""
    return {
        name if name.startswith("lm_head.") else f"model.{name}": tensor
        for name, tensor in model.untied_state().items()
    }


def _problems(definition: Embedding) -> Iterator[str]:
    allowed = f"rotary with at most one of {', '.join(kind.name for kind in SCALINGS)}"
    transforms: tuple[FrequencyTransform, ...] = getattr(definition, "transforms", ())
    known = all(type(transform) in SCALINGS for transform in transforms)
    if type(definition) is not Rotary or len(transforms) > 1 or not known:
        yield f"embedding: found {canonical(definition)} (allowed: {allowed})"
    for transform in transforms:
        for option, value in FIXED.get(type(transform), {}).items():
            if (found := getattr(transform, option)) != value:
                yield f"{transform.name}.{option}: found {found} (allowed: {value})"
        cycles = isinstance(transform, Yarn) and transform.ramp == "cycles"
        if cycles and getattr(transform, "attention_factor", None) != 1.0:
            yield "yarn.attention_factor: a ramp over cycles is Llama 3's (allowed: 1)"


FIXED: Mapping[type[FrequencyTransform], Mapping[str, Any]] = {
    DynamicNtk: {"base_scaling": "ntk"},
    Yarn: {"blend": "frequency"},
}
"""Options that transformers does not have, at what it does."""


def _linear(transform: Any, base: float, model: Decoder) -> dict[str, Any]:
    return {"rope_type": "linear", "factor": transform.factor}


def _larger_base(transform: Any, base: float, model: Decoder) -> dict[str, Any]:
    scale = BASE_SCALINGS[transform.base_scaling](transform.factor, model.config.head_dim)
    return {"rope_theta": base * scale}


def _dynamic(transform: Any, base: float, model: Decoder) -> dict[str, Any]:
    return {"rope_type": "dynamic", "factor": transform.growth}


def _yarn(transform: Any, base: float, model: Decoder) -> dict[str, Any]:
    return RAMPS[transform.ramp](transform) | {
        "factor": transform.factor,
        "original_max_position_embeddings": transform.original_length or model.train_length,
    }


def _yarns_own(transform: Yarn) -> dict[str, Any]:
    rope = {
        "rope_type": "yarn",
        "beta_slow": transform.alpha,
        "beta_fast": transform.beta,
        "truncate": transform.truncate,
    }
    factor = transform.attention_factor
    return rope if factor is None else {**rope, "attention_factor": factor}


def _llama3(transform: Yarn) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "low_freq_factor": transform.alpha,
        "high_freq_factor": transform.beta,
    }


RAMPS: Mapping[str, Callable[[Yarn], dict[str, Any]]] = {"index": _yarns_own, "cycles": _llama3}
SCALINGS: Mapping[type[FrequencyTransform], Callable[[Any, float, Decoder], dict[str, Any]]] = {
    Interpolate: _linear,
    Ntk: _larger_base,
    DynamicNtk: _dynamic,
    Yarn: _yarn,
}
"""From a transform, RoPE's base and the model to what it changes in `rope_parameters`."""
