"""Logits of random models of each family: fope-lab's compared to Hugging Face's.

    python benchmarks/parity.py [--tokens 160] [--models gqa yarn …] [--json FILE]

For each configuration, transformers builds a model with random weights, including the gains of
norms, and saves it; `load_model` reads the folder. With a CUDA device, both run on it. The columns:

- `float32`: the largest difference of any logit in float32, where products on CUDA are in float32,
  too. It grows with the length, since Hugging Face's angles are float32 and fope-lab's float64:
  2e-5 at 2,000 tokens, or 4e-6 if both are float64. The table is held to 1e-5 by
  tests/model/huggingface/test_huggingface_parity.py.
- `bfloat16`, `theirs`: the root mean square of the difference from Hugging Face's logits in
  float32, if fope-lab's weights and products are bfloat16, and if Hugging Face's are.
- `std`: the standard deviation of the logits, for scale.

The exit code is 1 if a difference in float32 is above 1e-4, or if one in bfloat16 is more than 1.5
times theirs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from fope_lab.config.atomic_files import write_atomic
from fope_lab.model import load_model

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MOST_FLOAT32, MOST_OF_THEIRS = 1e-4, 1.5

SIZES: Mapping[str, Any] = {
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "hidden_size": 64,
    "intermediate_size": 112,
    "vocab_size": 320,
    "max_position_embeddings": 128,
}
ORIGINAL = {"original_max_position_embeddings": 32}

SMALL_IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LEFT_OUT = "left out"
GPT2: Mapping[str, Any] = {
    "model_type": "gpt2",
    "num_key_value_heads": LEFT_OUT,
    "intermediate_size": LEFT_OUT,
    "max_position_embeddings": LEFT_OUT,
    "n_positions": 2100,
}

MODELS: Mapping[str, Mapping[str, Any]] = {
    "mha": {"model_type": "llama"},
    "gqa": {"model_type": "llama", "num_key_value_heads": 2},
    "mqa": {"model_type": "llama", "num_key_value_heads": 1},
    "tied": {"model_type": "llama", "tie_word_embeddings": True},
    "head_dim": {"model_type": "llama", "head_dim": 24},
    "base": {"model_type": "llama", "rope_theta": 500_000.0, "rms_norm_eps": 1e-3},
    "geglu": {"model_type": "llama", "hidden_act": "gelu_pytorch_tanh"},
    "linear": {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 4.0}},
    "dynamic": {"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 1.0}},
    "dynamic-4": {"model_type": "llama", "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    "yarn": {
        "model_type": "llama",
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, **ORIGINAL},
    },
    "yarn-options": {
        "model_type": "llama",
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1000.0,
            "factor": 8.0,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "truncate": False,
            "mscale": 0.7,
            "mscale_all_dim": 0.3,
            **ORIGINAL,
        },
    },
    "llama3": {
        "model_type": "llama",
        "num_key_value_heads": 2,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            **ORIGINAL,
        },
    },
    "biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "attention-bias": {"model_type": "llama", "attention_bias": True, "num_key_value_heads": 2},
    "mistral": {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": None},
    "mistral-window": {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 24},
    "gemma": {"model_type": "gemma", "num_key_value_heads": 1, "head_dim": 32},
    "gemma-untied": {
        "model_type": "gemma",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "tie_word_embeddings": False,
    },
    "gemma2": {
        "model_type": "gemma2",
        "num_key_value_heads": 2,
        "head_dim": 24,
        "query_pre_attn_scalar": 20,
        "sliding_window": 24,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 5.0,
    },
    "gemma2-plain": {
        "model_type": "gemma2",
        "head_dim": 16,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "layer_types": ["full_attention"] * 3,
        "attention_bias": True,
    },
    "gemma2-yarn": {
        "model_type": "gemma2",
        "num_key_value_heads": 1,
        "head_dim": 16,
        "sliding_window": 8,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, **ORIGINAL},
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "num_key_value_heads": 2,
        "head_dim": 24,
        "query_pre_attn_scalar": 20,
        "sliding_window": 24,
        "sliding_window_pattern": 3,
        "final_logit_softcapping": 5.0,
    },
    "gemma3-linear": {
        "model_type": "gemma3_text",
        "num_key_value_heads": 1,
        "head_dim": 16,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "gemma3-yarn": {
        "model_type": "gemma3_text",
        "head_dim": 16,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn",
                "rope_theta": 1000.0,
                "factor": 4.0,
                **ORIGINAL,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    },
    "qwen2": {"model_type": "qwen2", "num_key_value_heads": 2, "rope_theta": 1_000_000.0},
    "qwen2-window": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 24,
        "max_window_layers": 1,
    },
    "qwen2-yarn": {
        "model_type": "qwen2",
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, **ORIGINAL},
    },
    "qwen3": {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 24},
    "qwen3-window": {
        "model_type": "qwen3",
        "num_key_value_heads": 1,
        "head_dim": 16,
        "attention_bias": True,
        "use_sliding_window": True,
        "sliding_window": 24,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    },
    "qwen3-yarn": {
        "model_type": "qwen3",
        "head_dim": 16,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, **ORIGINAL},
    },
    "olmo2": {"model_type": "olmo2", "num_key_value_heads": 2},
    "olmo2-mha": {"model_type": "olmo2", "attention_bias": True, "tie_word_embeddings": True},
    "olmo2-linear": {
        "model_type": "olmo2",
        "num_key_value_heads": 1,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "olmo3": {
        "model_type": "olmo3",
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "sliding_window": 24,
    },
    "olmo3-yarn": {
        "model_type": "olmo3",
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.2, **ORIGINAL},
    },
    "olmo3-bases": {
        "model_type": "olmo3",
        "num_key_value_heads": 1,
        "sliding_window": 8,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    },
    "smollm3": {
        "model_type": "smollm3",
        "num_key_value_heads": 2,
        "num_hidden_layers": 5,
        **SMALL_IDS,
    },
    "smollm3-window": {
        "model_type": "smollm3",
        **SMALL_IDS,
        "no_rope_layers": [1, 0, 1],
        "use_sliding_window": True,
        "sliding_window": 24,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "smollm3-yarn": {
        "model_type": "smollm3",
        **SMALL_IDS,
        "no_rope_layer_interval": 2,
        "tie_word_embeddings": False,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, **ORIGINAL},
    },
    "phi3": {"model_type": "phi3", "num_key_value_heads": 2, **SMALL_IDS},
    "phi3-longrope": {
        "model_type": "phi3",
        **SMALL_IDS,
        **ORIGINAL,
        "partial_rotary_factor": 0.75,
        "rope_scaling": {
            "rope_type": "longrope",
            "short_factor": [1.0, 1.0, 1.1, 1.2, 1.3, 1.5],
            "long_factor": [1.0, 1.3, 2.0, 2.5, 3.0, 4.0],
        },
    },
    "phi3-window": {
        "model_type": "phi3",
        "num_key_value_heads": 1,
        "sliding_window": 24,
        **SMALL_IDS,
    },
    "gpt-neox": {"model_type": "gpt_neox", "num_key_value_heads": LEFT_OUT},
    "gpt-neox-sequential": {
        "model_type": "gpt_neox",
        "num_key_value_heads": LEFT_OUT,
        "use_parallel_residual": False,
        "rotary_pct": 0.5,
        "rotary_emb_base": 500.0,
        "hidden_act": "gelu_new",
        "tie_word_embeddings": True,
    },
    "gpt-neox-linear": {
        "model_type": "gpt_neox",
        "num_key_value_heads": LEFT_OUT,
        "rotary_pct": 1.0,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "gpt2": GPT2,
    "gpt2-gelu": {**GPT2, "activation_function": "gelu", "tie_word_embeddings": False},
    "gpt2-narrow": {**GPT2, "n_inner": 100, "layer_norm_epsilon": 1e-2},
}
"""The differences of each configuration from SIZES, by name: three shapes of each family."""


def random_model(name: str, seed: int = 0) -> PreTrainedModel:
    """The model of that name in transformers, in eval mode, every weight random."""
    settings = {**SIZES, **MODELS[name]}
    given = {option: value for option, value in settings.items() if value != LEFT_OUT}
    # No other attention of theirs has caps.
    config = AutoConfig.for_model(given.pop("model_type"), attn_implementation="eager", **given)
    return random_weights(config, seed)


def random_weights(config: Any, seed: int = 0) -> PreTrainedModel:
    """A model of transformers in eval mode, every weight random, also the gains of norms."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
            else:
                parameter.normal_(0.0, 0.1)
    return model.eval()


@contextmanager
def saved(model: PreTrainedModel, **how: Any) -> Iterator[Path]:
    """Save the model to a temporary folder and yield the folder."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, **how)
        yield Path(folder)


@dataclass(frozen=True)
class Difference:
    """How far logits are from Hugging Face's in float32, and their standard deviation.

    `largest` is that of float32, and the others are root mean squares of bfloat16: fope-lab's, and
    Hugging Face's own.
    """

    largest: float
    ours: float
    theirs: float
    std: float

    @property
    def is_small(self) -> bool:
        """Whether it is within the limits of this benchmark."""
        return self.largest <= MOST_FLOAT32 and self.ours <= MOST_OF_THEIRS * self.theirs


@torch.no_grad()
def difference(name: str, tokens: int) -> Difference:
    """Compare a model with random weights, on random tokens."""
    theirs = random_model(name)
    with saved(theirs) as folder:
        ours = load_model(folder)
        how = {"dtype": torch.bfloat16, "attn_implementation": "eager"}
        narrow = AutoModelForCausalLM.from_pretrained(folder, **how).eval()
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, SIZES["vocab_size"], (2, tokens), generator=generator).to(DEVICE)
    expected = theirs.to(DEVICE)(ids).logits
    largest = float((ours.to(DEVICE)(ids).logits - expected).abs().max())
    models: Mapping[str, Any] = {"ours": ours.bfloat16(), "theirs": narrow.to(DEVICE)}
    errors = {
        side: float((model(ids).logits.float() - expected).square().mean().sqrt())
        for side, model in models.items()
    }
    return Difference(largest, errors["ours"], errors["theirs"], float(expected.std()))


def main() -> int:
    """Print a line for each model; return 1 if a difference is not small, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    options = parser.parse_args()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    print(f"{'model':14}{'float32':>10}{'bfloat16':>11}{'theirs':>9}{'std':>8}")
    found = {}
    for name in options.models:
        found[name] = one = difference(name, options.tokens)
        verdict = "" if one.is_small else "  TOO FAR"
        print(
            f"{name:14}{one.largest:10.1e}{one.ours:11.4f}{one.theirs:9.4f}{one.std:8.2f}{verdict}",
            flush=True,
        )
        if options.json:  # after each model, so that an early end leaves what was measured
            content = {name: dataclasses.asdict(one) for name, one in found.items()}
            write_atomic(options.json, json.dumps(content, indent=1) + "\n")
    return int(not all(one.is_small for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
