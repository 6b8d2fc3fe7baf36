"""A decoder as transformers' own GPT2LMHeadModel, which can express those of GPT-2's block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fope_lab.embeddings.learned import Learned
from fope_lab.model.checkpoint_config import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.model.decoder import Decoder

ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu"}
NEEDED = {"norm": "layer", "biases": True, "qk_norm": "none", "scale_embeddings": False}
"""The values that fields of a ModelConfig must have."""
LAYER: Mapping[str, str] = {
    "input_layernorm": "ln_1",
    "self_attn.o_proj": "attn.c_proj",
    "post_attention_layernorm": "ln_2",
    "mlp.up_proj": "mlp.c_fc",
    "mlp.down_proj": "mlp.c_proj",
}
"""The names of GPT-2's modules in a layer by ours; queries, keys and values are one of them."""


def gpt2_description(model: Decoder) -> dict[str, Any]:
    """The config.json of a decoder; its context is as long as its table of positions.

    Raises CheckpointError, which names everything that GPT-2 does not have.
    """
    config, embedding = model.config, model.embedding
    needed = {**NEEDED, "num_kv_heads": config.num_heads}
    needed["hidden_size"] = config.num_heads * config.head_dim
    problems = [
        f"{name}: found {getattr(config, name)} (allowed: {allowed})"
        for name, allowed in needed.items()
        if getattr(config, name) != allowed
    ]
    if config.feed_forward not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        problems.append(f"feed_forward: found {config.feed_forward} (allowed: {allowed})")
    if not isinstance(embedding, Learned):
        problems.append(f"embedding: found {embedding.name} (allowed: {Learned.name})")
    if problems:
        raise CheckpointError(f"GPT2LMHeadModel cannot express this model: {'; '.join(problems)}")
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "dtype": str(model.embed_tokens.weight.dtype).removeprefix("torch."),
        "vocab_size": config.vocab_size,
        "n_positions": _table(model).shape[0],
        "n_embd": config.hidden_size,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.intermediate_size,
        "activation_function": ACTIVATIONS[config.feed_forward],
        "layer_norm_epsilon": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), config.dropout),
        # GPT-2's own ids of them may be past the end of the vocabulary.
        **dict.fromkeys(("bos_token_id", "eos_token_id")),
    }


def gpt2_weights(model: Decoder) -> dict[str, Tensor]:
    """The tensors of a decoder under GPT-2's names, with its transposed matrices."""
    import torch

    state = model.untied_state()
    found = {
        "transformer.wte.weight": state["embed_tokens.weight"],
        "transformer.wpe.weight": _table(model),
        "transformer.ln_f.weight": state["norm.weight"],
        "transformer.ln_f.bias": state["norm.bias"],
    }
    if not model.config.tie_embeddings:
        found["lm_head.weight"] = state["lm_head.weight"]
    for layer in range(model.config.num_layers):
        ours, theirs = f"layers.{layer}.", f"transformer.h.{layer}."
        for kind in ("weight", "bias"):
            for own, name in LAYER.items():
                found[f"{theirs}{name}.{kind}"] = _transposed(state[f"{ours}{own}.{kind}"])
            parts = [state[f"{ours}self_attn.{name}_proj.{kind}"] for name in "qkv"]
            found[f"{theirs}attn.c_attn.{kind}"] = _transposed(torch.cat(parts))
    return found


def _table(model: Decoder) -> Tensor:
    return model.state_dict()["position_embeddings.0.by_position"]


def _transposed(tensor: Tensor) -> Tensor:
    """A matrix of outputs by inputs as GPT-2 has it; a vector stays as it is."""
    return tensor.T.contiguous() if tensor.dim() == 2 else tensor
