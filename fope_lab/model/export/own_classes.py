"""A decoder as a class of transformers' own, LlamaForCausalLM or GPT2LMHeadModel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fope_lab.embeddings.base import EmbeddingError, Shape
from fope_lab.embeddings.learned import Learned
from fope_lab.model.checkpoint_files import CheckpointError
from fope_lab.model.huggingface import FAMILIES, SIZES

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.model.decoder import Decoder

LLAMA_NAMES: Mapping[str, str] = {
    **SIZES,
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "norm_eps": "rms_norm_eps",
    "tie_embeddings": "tie_word_embeddings",
}
"""The names of fields in Llama's config.json by ours."""
LLAMA_ACTIVATIONS: Mapping[str, str] = {
    ours: theirs for theirs, ours in FAMILIES["llama"].activations.items()
}
GPT2_NAMES: Mapping[str, str] = {
    "vocab_size": "vocab_size",
    "hidden_size": "n_embd",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "intermediate_size": "n_inner",
    "norm_eps": "layer_norm_epsilon",
    "tie_embeddings": "tie_word_embeddings",
}
"""The names of fields in GPT-2's config.json by ours."""
GPT2_ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu"}
GPT2_LAYER: Mapping[str, str] = {
    "input_layernorm": "ln_1",
    "self_attn.o_proj": "attn.c_proj",
    "post_attention_layernorm": "ln_2",
    "mlp.up_proj": "mlp.c_fc",
    "mlp.down_proj": "mlp.c_proj",
}
"""The names of GPT-2's modules in a layer by ours; queries, keys and values are one of them."""
Written = tuple[dict[str, Any], dict[str, "Tensor"]]
"""The config.json and the tensors of a format."""


def llama(model: Decoder, context_length: int) -> Written:
    """A decoder that was last trained at `context_length` tokens under Llama's names.

    Raises CheckpointError, which names everything that Llama does not have.
    """
    rope, problems = None, []
    try:
        shape = Shape(**model.config.head_sizes, train_length=model.train_length)
        rope = model.embedding.to_hf(shape, context_length)
    except EmbeddingError as error:
        problems = list(map(str, error.problems))
    needed = {"norm": "rms", "biases": False, "qk_norm": "none", "scale_embeddings": False}
    _require("LlamaForCausalLM", model, needed, LLAMA_ACTIVATIONS, problems)
    assert rope is not None  # or else there was a problem
    description = {
        **_common("llama", "LlamaForCausalLM", model, LLAMA_NAMES),
        "hidden_act": LLAMA_ACTIVATIONS[model.config.feed_forward],
        "max_position_embeddings": rope.max_length,
        "rope_parameters": dict(rope.parameters),
    }
    weights = {
        name if name.startswith("lm_head.") else f"model.{name}": tensor
        for name, tensor in model.untied_state().items()
    }
    return description, weights


def gpt2(model: Decoder) -> Written:
    """A decoder under GPT-2's names; its context is as long as its table of positions.

    Raises CheckpointError, which names everything that GPT-2 does not have.
    """
    config, embedding = model.config, model.embedding
    needed = {"norm": "layer", "biases": True, "qk_norm": "none", "scale_embeddings": False}
    needed |= {"num_kv_heads": config.num_heads, "hidden_size": config.num_heads * config.head_dim}
    problems = []
    if not isinstance(embedding, Learned):
        problems = [f"embedding: found {embedding.name} (allowed: {Learned.name})"]
    _require("GPT2LMHeadModel", model, needed, GPT2_ACTIVATIONS, problems)
    weights = _gpt2_weights(model)
    description = {
        **_common("gpt2", "GPT2LMHeadModel", model, GPT2_NAMES),
        "n_positions": weights["transformer.wpe.weight"].shape[0],
        "activation_function": GPT2_ACTIVATIONS[config.feed_forward],
        **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), config.dropout),
        # GPT-2's own ids of them may be past the end of the vocabulary.
        **dict.fromkeys(("bos_token_id", "eos_token_id")),
    }
    return description, weights


def _gpt2_weights(model: Decoder) -> dict[str, Tensor]:
    """The tensors of a decoder under GPT-2's names, with its transposed matrices."""
    import torch

    state = model.untied_state()
    found = {
        "transformer.wte.weight": state["embed_tokens.weight"],
        "transformer.wpe.weight": state["position_embeddings.0.by_position"],
        "transformer.ln_f.weight": state["norm.weight"],
        "transformer.ln_f.bias": state["norm.bias"],
    }
    if not model.config.tie_embeddings:
        found["lm_head.weight"] = state["lm_head.weight"]
    for layer in range(model.config.num_layers):
        ours, theirs = f"layers.{layer}.", f"transformer.h.{layer}."
        for kind in ("weight", "bias"):
            for own, name in GPT2_LAYER.items():
                found[f"{theirs}{name}.{kind}"] = _transposed(state[f"{ours}{own}.{kind}"])
            parts = [state[f"{ours}self_attn.{name}_proj.{kind}"] for name in "qkv"]
            found[f"{theirs}attn.c_attn.{kind}"] = _transposed(torch.cat(parts))
    return found


def _require(
    of: str,
    model: Decoder,
    needed: Mapping[str, object],
    activations: Mapping[str, str],
    problems: list[str],
) -> None:
    """Raise CheckpointError for what a class cannot express, with `problems` of the embedding."""
    allowed: dict[str, tuple[object, ...]] = {name: (value,) for name, value in needed.items()}
    allowed["feed_forward"] = tuple(activations)
    found = [
        f"{name}: found {getattr(model.config, name)} (allowed: {', '.join(map(str, values))})"
        for name, values in allowed.items()
        if getattr(model.config, name) not in values
    ]
    if found or problems:
        whole = "; ".join([*found, *problems])
        raise CheckpointError(f"{of} cannot express this model: {whole}")


def _common(
    kind: str, architecture: str, model: Decoder, names: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "model_type": kind,
        "architectures": [architecture],
        "dtype": str(model.embed_tokens.weight.dtype).removeprefix("torch."),
        **{theirs: getattr(model.config, ours) for ours, theirs in names.items()},
    }


def _transposed(tensor: Tensor) -> Tensor:
    """A matrix of outputs by inputs as GPT-2 has it; a vector stays as it is."""
    return tensor.T.contiguous() if tensor.dim() == 2 else tensor
