"""What a config.json of the Llama family comes to, and what is refused."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.model import SCALES, CheckpointError, ModelConfig, read_config
from fope_lab.model.checkpoint_files import ConfigSource
from fope_lab.model.families.base import read_family_config

SOURCE = ConfigSource("config.json", Path(), "byte")
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 320,
}
SMOLLM = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 2048,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 24,
    "num_key_value_heads": 32,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "use_cache": True,
    "vocab_size": 49152,
}
GEMMA_2B = {
    "architectures": ["GemmaForCausalLM"],
    "attention_bias": False,
    "head_dim": 256,
    "hidden_act": "gelu",
    "hidden_activation": None,
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "max_position_embeddings": 8192,
    "model_type": "gemma",
    "num_attention_heads": 8,
    "num_hidden_layers": 18,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "torch_dtype": "bfloat16",
    "vocab_size": 256000,
}


def write(folder: Path, description: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(description))
    return folder


def test_published_models_are_the_scales_of_that_name(tmp_path: Path) -> None:
    smollm = read_config(write(tmp_path / "smollm", SMOLLM))
    assert smollm.model == SCALES["smollm-1.7b"]
    assert smollm.embedding.canonical() == {"type": "rotary"}
    assert (smollm.train_length, smollm.context_length) == (2048, 2048)
    assert smollm.tokenizer == str(tmp_path / "smollm")
    assert read_config(write(tmp_path / "gemma", GEMMA_2B)).model == SCALES["gemma-2b"]


@pytest.mark.parametrize("act", ["gelu", "gelu_pytorch_tanh"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_pytorch_tanh"])
def test_gemmas_gelu_is_the_tanh_form_under_both_names(
    tmp_path: Path, act: str, activation: str
) -> None:
    given = {**GEMMA_2B, "hidden_act": act, "hidden_activation": activation}
    assert read_config(write(tmp_path, given)).model == SCALES["gemma-2b"]


def test_what_is_left_out_has_transformers_defaults(tmp_path: Path) -> None:
    from transformers import AutoConfig

    sizes = {name: LLAMA[name] for name in LLAMA if name not in ("architectures", "model_type")}
    sizes["num_attention_heads"] = 16  # those of the key-value heads that are left out
    for kind in ("llama", "mistral", "gemma"):
        explicit = AutoConfig.for_model(kind, **sizes).to_dict()
        architecture = f"{kind.capitalize()}ForCausalLM"
        given = {**sizes, "model_type": kind, "architectures": [architecture]}
        window = {"sliding_window": None} if kind == "mistral" else {}
        short = read_config(write(tmp_path, {**given, **window}))
        whole = read_config(
            write(tmp_path, {**explicit, "architectures": [architecture], **window})
        )
        assert short == whole


def test_llama_3_starts_from_its_original_length(tmp_path: Path) -> None:
    """The published configuration of Llama 3.1."""
    scaling = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    }
    given = {"rope_theta": 500000.0, "rope_scaling": scaling, "max_position_embeddings": 131072}
    config = read_config(write(tmp_path, {**LLAMA, **given}))
    assert (config.train_length, config.context_length) == (8192, 131072)
    assert config.embedding.canonical() == {
        "type": "rotary",
        "base": 500000.0,
        "transforms": [
            {"type": "yarn", "factor": 8.0, "beta": 4.0, "ramp": "cycles", "attention_factor": 1.0}
        ],
    }
    assert config.model == ModelConfig(
        num_layers=2, num_heads=4, head_dim=16, intermediate_size=176, vocab_size=320, norm_eps=1e-6
    )


def test_a_factor_of_one_scales_nothing(tmp_path: Path) -> None:
    one: dict[str, Any] = {"factor": 1.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    for kind in ("linear", "yarn", "llama3"):
        given = {"rope_parameters": {"rope_type": kind, "rope_theta": 1000.0, **one}}
        config = read_config(write(tmp_path, {**LLAMA, **given}))
        assert config.embedding.canonical() == {"type": "rotary", "base": 1000.0}
        assert config.train_length == 2048


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mlp_bias": True}, "mlp_bias: found true (allowed: false, true with attention_bias: tr"),
        ({"attention_dropout": 0.1}, "attention_dropout: found 0.1 (allowed: 0, null)"),
        ({"attn_logit_softcapping": 50},
         "attn_logit_softcapping: found 50, which is not known; without an effect, delete it"),
        ({"partial_rotary_facter": 0.5}, "did you mean 'partial_rotary_factor'?"),
        ({"sliding_window": 4096}, "sliding_window: found 4096 (allowed: null)"),
        ({"model_type": "mistral", "architectures": ["MistralForCausalLM"],
          "num_key_value_heads": 4, "layer_types": ["full_attention"] * 2},
         "layer_types: found ['full_attention', 'full_attention'] (allowed: null, ['sliding_a"),
        ({"layer_types": ["full_attention", "sliding_attention"]},
         "layer_types: found ['full_attention', 'sliding_attention'] (allowed: null, ['full_a"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: found 0.5 (allowed: null, 1)"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}},
         "partial_rotary_factor: found 0.25 (allowed: null, 1)"),
        ({"rope_scaling": {"type": "mrope", "factor": 4.0}},
         "rope_type: found mrope (allowed: default, dynamic, linear, longrope, proportional, yarn, "
         "llama3)"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}},
         "rope_parameters: found one set for full_attention (allowed: one for all layers)"),
        ({"quantization_config": {"quant_method": "gptq"}},
         "quantization_config: found {'quant_method': 'gptq'} (allowed: null)"),
        ({"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh"},
         "hidden_activation: found gelu_pytorch_tanh (allowed: hidden_act's silu)"),
        ({"hidden_activation": "gelu_pytorch_tanh"},
         "hidden_activation: found gelu_pytorch_tanh (allowed: hidden_act's silu)"),
        ({**GEMMA_2B, "hidden_act": "gelu", "hidden_activation": "silu"},
         "hidden_activation: found silu (allowed: hidden_act's gelu)"),
        ({**GEMMA_2B, "hidden_act": "relu", "hidden_activation": "gelu"},
         "hidden_act: found relu (allowed: gelu_pytorch_tanh, gelu); hidden_activation: found"),
        ({"hidden_act": "relu"}, "hidden_act: found relu (allowed: silu, gelu_pytorch_tanh)"),
        ({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]},
         "architectures: found MixtralForCausalLM (allowed: GemmaForCausalLM, "),
        ({"architectures": ["LlamaForSequenceClassification"]},
         "architectures: found LlamaForSequenceClassification"),
        ({"architectures": None, "model_type": "t5"}, "architectures: found model_type t5"),
        ({"hidden_size": None}, "hidden_size: is missing (allowed: a whole number from 1)"),
        ({"vocab_size": "320"}, "vocab_size: found '320' (allowed: a whole number from 1)"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings: found no (allowed: true, false)"),
        ({"rms_norm_eps": 0}, "rms_norm_eps: found 0 (allowed: a number above 0)"),
        ({"num_key_value_heads": 3}, "num_heads 4 is not divisible by num_kv_heads 3"),
        ({"head_dim": 15}, "head_dim 15 is odd"),
        ({"rope_scaling": {"type": "linear"}}, "'factor' is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor"),
    ],
)  # fmt: skip
def test_what_the_decoder_lacks_is_one_clear_error(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError) as raised:
        read_config(write(tmp_path, {**LLAMA, **changes}))
    assert message in str(raised.value)
    assert str(tmp_path / "config.json") in str(raised.value)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as raised:
        read_config(write(tmp_path, {**LLAMA, "mlp_bias": True, "hidden_act": "tanh"}))
    assert "mlp_bias" in str(raised.value)
    assert "hidden_act" in str(raised.value)


JUNK = st.none() | st.booleans() | st.integers(-9, 10**30) | st.floats() | st.text(max_size=3)
VALUES = JUNK | st.lists(JUNK, max_size=2) | st.dictionaries(st.text(max_size=3), JUNK, max_size=2)
ROPE = st.dictionaries(
    st.sampled_from(["rope_type", "type", "rope_theta", "factor", "beta_fast", "low_freq_factor"]),
    VALUES | st.sampled_from(["linear", "dynamic", "yarn", "llama3"]),
)
FIELDS = [*SMOLLM, "rope_parameters", "layer_types", "head_dim", "sliding_window", "mlp_bias"]


@settings(deadline=None)
@given(
    base=st.sampled_from([SMOLLM, GEMMA_2B, LLAMA]),
    changes=st.dictionaries(st.sampled_from(FIELDS), VALUES | ROPE, max_size=3),
)
def test_a_wrong_config_is_never_a_crash(base: dict[str, Any], changes: dict[str, Any]) -> None:
    with contextlib.suppress(CheckpointError):
        read_family_config({**base, **changes}, SOURCE)
