"""The config.json of the models on the hub that shipped sweeps start from.

A commit never changes, so that these sweeps can be checked and planned without a download. Loading
the model reads the file itself, and a difference is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LLAMA: Mapping[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "rope_theta": 10_000.0,
    "rms_norm_eps": 1e-5,
}

LLAMA_2_7B: Mapping[str, Any] = {
    **LLAMA,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32_000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}

PINNED_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "HuggingFaceTB/SmolLM-1.7B@d7449ff7241c863f3e8accc475155f0f97afa011": {
        **LLAMA,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 49_152,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    },
    "meta-llama/Llama-2-7b-hf@01c7f73d771dfac7d292323805ebc428287df4f9": LLAMA_2_7B,
    "meta-llama/Llama-2-7b-chat-hf@f5db02db724555f92da89c216ac04704f23d4590": LLAMA_2_7B,
    "meta-llama/Llama-2-13b-chat-hf@a2cb7a712bb6e5e736ca7f8cd98167f81a0b5bd8": {
        **LLAMA,
        "hidden_size": 5120,
        "intermediate_size": 13_824,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
        "vocab_size": 32_000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    },
    "google/gemma-7b@ff6768d9368919a1f025a54f9f5aa0ee591730bb": {
        "model_type": "gemma",
        "architectures": ["GemmaForCausalLM"],
        "rope_theta": 10_000.0,
        "rms_norm_eps": 1e-6,
        "hidden_size": 3072,
        "intermediate_size": 24_576,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 256,
        "vocab_size": 256_000,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
}
"""The fields of config.json that define the model, by NAME@COMMIT."""
