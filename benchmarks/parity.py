"""Logits of random models of the Llama family: fope-lab's compared to Hugging Face's.

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
    "mistral": {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": None},
    "gemma": {"model_type": "gemma", "num_key_value_heads": 1, "head_dim": 32},
    "gemma-untied": {
        "model_type": "gemma",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "tie_word_embeddings": False,
    },
}
"""The differences of each configuration from SIZES, by name."""


def random_model(name: str, seed: int = 0) -> PreTrainedModel:
    """The model of that name in transformers, in eval mode, every weight random."""
    settings = {**SIZES, **MODELS[name]}
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
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
        narrow = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
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
