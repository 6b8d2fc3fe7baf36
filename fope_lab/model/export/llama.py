"""A decoder as transformers' own LlamaForCausalLM, which can express some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fope_lab.embeddings.base import Shape
from fope_lab.embeddings.errors import EmbeddingError
from fope_lab.model.checkpoint_config import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.model.decoder import Decoder

ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu_pytorch_tanh"}
NEEDED = {"norm": "rms", "biases": False, "qk_norm": "none", "scale_embeddings": False}
"""The values that fields of a ModelConfig must have."""


def llama_description(model: Decoder, context_length: int) -> dict[str, Any]:
    """The config.json of a decoder that was last trained at `context_length` tokens.

    Raises CheckpointError, which names everything that Llama does not have.
    """
    config = model.config
    problems = [
        f"{name}: found {getattr(config, name)} (allowed: {allowed})"
        for name, allowed in NEEDED.items()
        if getattr(config, name) != allowed
    ]
    if config.feed_forward not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        problems.append(f"feed_forward: found {config.feed_forward} (allowed: {allowed})")
    shape = Shape(**config.head_sizes, train_length=model.train_length)
    try:
        rope = model.embedding.to_hf(shape, context_length)
    except EmbeddingError as error:
        problems += map(str, error.problems)
    if problems:
        raise CheckpointError(f"LlamaForCausalLM cannot express this model: {'; '.join(problems)}")
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
        "max_position_embeddings": rope.max_length,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "rope_parameters": dict(rope.parameters),
    }


def llama_weights(model: Decoder) -> dict[str, Tensor]:
    """The tensors of a decoder under the names that transformers has for them."""
    return {
        name if name.startswith("lm_head.") else f"model.{name}": tensor
        for name, tensor in model.untied_state().items()
    }
