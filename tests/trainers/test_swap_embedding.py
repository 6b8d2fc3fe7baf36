"""Another embedding without training: the model is the parent's, and transformers agrees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sections import read_section
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.model import Decoder, ModelConfig, load_model, read_config, save_model
from fope_lab.stages.internal import SwapEmbedding
from fope_lab.store.root import Store
from trainers.models import swap_embedding as run

TRAINED, LENGTH, THETA = 64, 240, 1000.0
SIZES = ModelConfig(num_layers=2, num_heads=2, head_dim=16, vocab_size=272)
TOLERANCE = 1e-5


def swapped(root: Path, parent: Path, embedding: Any, key: str = "key", seed: int = 0) -> Path:
    """The checkpoint of the stage."""
    spec = read_section(SwapEmbedding, {"from": str(parent), "embedding": embedding, "seed": seed})
    folder = Store.create(root / "store").folder("swap-embedding", key)
    request = {"kind": spec.kind, "config": {}, "parents": {"from": str(parent)}}
    with folder.begin("test", request) as attempt:
        attempt.finish(run(spec, attempt.writer, {"from": parent}))
    return folder.final_checkpoint().path


@pytest.fixture(scope="module")
def llama(
    tmp_path_factory: pytest.TempPathFactory, make_bpe: Callable[..., PreTrainedTokenizerFast]
) -> Path:
    """A model of transformers with random weights, and its tokenizer."""
    folder = tmp_path_factory.mktemp("llama")
    hugging_face({}).save_pretrained(folder)
    make_bpe().save_pretrained(folder)
    return folder


def hugging_face(scaling: dict[str, Any]) -> LlamaForCausalLM:
    """The same weights for every scaling."""
    config = LlamaConfig(
        vocab_size=600,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=TRAINED,
        rope_parameters={"rope_type": "default", "rope_theta": THETA, **scaling},
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.1)
    return model.eval()


def logits(model: Any, length: int = LENGTH) -> Tensor:
    ids = torch.randint(0, 272, (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found: Tensor = model(ids).logits
    return found


@pytest.mark.parametrize(
    ("embedding", "scaling"),
    [
        ({"type": "pi", "factor": 4}, {"rope_type": "linear", "factor": 4.0}),
        ({"type": "dynamic-ntk"}, {"rope_type": "dynamic", "factor": 1.0}),
        (
            {"type": "yarn", "factor": 4},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED},
        ),
    ],
    ids=["linear", "dynamic", "yarn"],
)
def test_logits_are_those_of_transformers_with_rope_scaling(
    tmp_path: Path, llama: Path, embedding: dict[str, Any], scaling: dict[str, Any]
) -> None:
    """The weights are the same, and only the configuration of the rotation differs."""
    checkpoint = swapped(tmp_path, llama, {**embedding, "base": THETA})
    found, expected = logits(load_model(checkpoint)), logits(hugging_face(scaling))
    assert (found - expected).abs().max() < TOLERANCE
    before = logits(load_model(llama))
    assert (before - expected).abs().max() > 1000 * TOLERANCE, "the scaling is seen"
    config = read_config(checkpoint)
    assert (config.train_length, config.context_length) == (TRAINED, TRAINED)
    ours, theirs = (load_tokenizer(read_config(path).tokenizer) for path in (checkpoint, llama))
    assert ours.identity() == theirs.identity()


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parent")
    model = Decoder(SIZES, "rope", train_length=TRAINED)
    save_model(folder, model, context_length=TRAINED, tokenizer="byte")
    return folder


def test_what_an_embedding_draws_follows_from_the_seed(tmp_path: Path, parent: Path) -> None:
    fope = {"type": "fope", "sigma": 0.5}
    found = [
        logits(load_model(swapped(tmp_path, parent, fope, key=f"key{i}", seed=seed)))
        for i, seed in enumerate((0, 0, 1))
    ]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_the_result_states_the_parameters_and_the_facts(tmp_path: Path, parent: Path) -> None:
    swapped(tmp_path, parent, {"type": "yarn", "factor": 2})
    result = Store(tmp_path / "store").folder("swap-embedding", "key").result()
    total = sum(weight.numel() for weight in load_model(parent).parameters())
    assert result["recorded"]["parameters"]["total"] == total
