"""Estimates of memory against what autograd and AdamW really hold."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest
import torch
from torch import Tensor

from fope_lab.embeddings.spec import parse_embedding
from fope_lab.model import SCALES, Decoder, ModelConfig
from fope_lab.model.adapter import PROJECTIONS, Adapter
from fope_lab.model.config import CHUNK_LOGITS
from fope_lab.model.lora import add_adapter
from fope_lab.model.memory import Memory, reading_memory, training_memory
from fope_lab.stages.training import TrainSettings
from trainers.optimizer import build_optimizer

CONFIG = ModelConfig(num_layers=1, num_heads=8, head_dim=32, num_kv_heads=4, vocab_size=64)
BATCH, LENGTH = 4, 64


def kept(
    config: ModelConfig,
    embedding: str,
    precision: str,
    checkpointing: bool,
    adapter: Adapter | None = None,
) -> int:
    """Bytes that autograd keeps of a forward pass, parameters left out, each storage once."""
    model = Decoder(config, embedding, train_length=LENGTH).train()
    if adapter is not None:
        add_adapter(model, adapter, seed=0)
    model.gradient_checkpointing = checkpointing
    ids = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    held: dict[int, Tensor] = {}
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in own:
            held[place] = tensor
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"),
    ):
        model(ids, labels=ids)
    return sum(tensor.untyped_storage().nbytes() for tensor in held.values())


def of_two_layers(config: ModelConfig, **options: Any) -> int:
    """What two more layers add to the activations."""
    one, three = (
        training_memory(
            dataclasses.replace(config, num_layers=layers), batch=BATCH, length=LENGTH, **options
        ).activations
        for layers in (1, 3)
    )
    return three - one


FEED_FORWARDS = get_args(get_type_hints(ModelConfig)["feed_forward"])
BLOCKS: list[dict[str, Any]] = [
    *({"feed_forward": forward} for forward in FEED_FORWARDS),
    *({"qk_norm": norm} for norm in ("layer", "rms", "head_rms")),
    *({"norm_place": place} for place in ("post", "both")),
    {"norm": "shifted_rms", "norm_place": "both", "qk_norm": "head_rms"},
    {"parallel": True, "biases": "qkv", "score_size": 7.0},
    {"attention_cap": 5.0, "logit_cap": 5.0},
    {"norm": "layer"},
    {"norm": "layer", "biases": True, "feed_forward": "gelu_tanh"},
]


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("embedding", "block"),
    # A bias of attention holds no weights also where some are dropped.
    [*itertools.product(("rope", "alibi"), BLOCKS), ("alibi", {"dropout": 0.1})],
)
def test_a_layer_keeps_what_is_estimated(
    precision: str, embedding: str, block: dict[str, Any]
) -> None:
    config = dataclasses.replace(CONFIG, **block)
    found = [
        kept(dataclasses.replace(config, num_layers=layers), embedding, precision, False)
        for layers in (1, 3)
    ]
    estimate = of_two_layers(config, precision=precision)
    assert estimate == pytest.approx(found[1] - found[0], rel=0.01)


HIDDEN = ("fox", "path", "selective-rope", "repo")
"""The embeddings that keep what they compute from hidden states."""


@pytest.mark.parametrize(
    ("name", "precision"),
    # Narrow, fox keeps wide copies on a CPU only.
    [*itertools.product(HIDDEN[1:], ("float32", "bfloat16")), ("fox", "float32")],
)
@pytest.mark.parametrize("kv_heads", [2, 4])
def test_an_embedding_keeps_what_it_says(name: str, precision: str, kv_heads: int) -> None:
    config = dataclasses.replace(CONFIG, num_kv_heads=kv_heads, hidden_size=320)
    one, three = (
        kept(dataclasses.replace(config, num_layers=layers), name, precision, False)
        for layers in (1, 3)
    )
    estimate = of_two_layers(config, embedding=parse_embedding(name), precision=precision)
    assert estimate == pytest.approx(three - one, rel=0.01)


def test_gradient_checkpointing_keeps_what_one_layer_of_a_pattern_does() -> None:
    pattern = parse_embedding({"type": "layered", "pattern": ["rope", "repo"]})
    sizes = {"batch": BATCH, "length": LENGTH, "gradient_checkpointing": True}
    config = dataclasses.replace(CONFIG, num_layers=8)
    found = [
        training_memory(config, each, **sizes).activations
        for each in (pattern, parse_embedding("repo"), parse_embedding("rope"))
    ]
    assert found[0] == found[1] > found[2]


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), PROJECTIONS])
def test_a_layer_with_adapters_keeps_what_is_estimated(
    precision: str, targets: tuple[Any, ...]
) -> None:
    adapter = Adapter(rank=4, targets=targets)
    found = [
        kept(dataclasses.replace(CONFIG, num_layers=n), "rope", precision, False, adapter)
        for n in (1, 3)
    ]
    estimate = of_two_layers(CONFIG, precision=precision, adapter=adapter)
    # Narrow, a CPU's attention keeps no result unless the next projection does.
    spared = precision == "bfloat16" and "o_proj" not in targets
    assert estimate == pytest.approx(found[1] - found[0], rel=0.03 if spared else 0.01)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_with_gradient_checkpointing_a_layer_keeps_its_input(precision: str) -> None:
    found = [
        kept(dataclasses.replace(CONFIG, num_layers=layers), "nope", precision, True)
        for layers in (1, 3)
    ]
    assert found[1] - found[0] == 2 * BATCH * LENGTH * 4 * CONFIG.hidden_size
    if precision == "float32":
        options = {"precision": precision, "gradient_checkpointing": True}
        assert of_two_layers(CONFIG, **options) == found[1] - found[0]


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_weights_gradients_and_optimizer_are_those_of_a_step(name: Any) -> None:
    model = Decoder(CONFIG, "kerple", train_length=LENGTH)
    chosen = TrainSettings(tokens=1, batch_tokens=1, learning_rate=1e-3, optimizer=name)
    optimizer = build_optimizer(model, chosen)
    ids = torch.zeros(1, 4, dtype=torch.long)
    model(ids, labels=ids).loss.backward()
    optimizer.step()
    moments = [
        tensor.nbytes
        for state in optimizer.state.values()
        for name, tensor in state.items()
        if name != "step"
    ]
    learned = sum(parameter.numel() for parameter in model.position_embeddings.parameters())
    step = training_memory(CONFIG, batch=1, length=4, learned=learned, optimizer=name)
    assert step.weights == sum(parameter.nbytes for parameter in model.parameters())
    assert step.gradients == sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    assert step.optimizer == sum(moments)


def test_gradients_of_an_earlier_micro_batch_are_there_already() -> None:
    sizes = {"batch": 2, "length": 512}
    one, several = (
        training_memory(SCALES["60m"], **sizes, micro_batches=count) for count in (1, 2)
    )
    assert one.activations > one.gradients > 0
    assert one.peak == one.weights + one.optimizer + one.activations
    assert several.peak == one.peak + one.gradients
    few = training_memory(SCALES["1.2b"], batch=1, length=8)
    assert few.peak == few.weights + few.optimizer + few.gradients


@pytest.mark.parametrize(("memory", "copies"), [(training_memory, 1), (reading_memory, 2)])
def test_a_loss_holds_no_more_logits_than_there_are(
    memory: Callable[..., Memory], copies: int
) -> None:
    """A loss of 8 tokens in a vocabulary of 64 has 512 logits. In training their gradient takes
    their place; a loss that is only read has their logarithms beside them."""
    one, two = (memory(CONFIG, batch=1, length=length).activations for length in (8, 16))
    fixed = 2 * one - two  # all that does not grow with the tokens
    gradient_of_head = 2 * 4 * CONFIG.vocab_size * CONFIG.hidden_size
    assert fixed == (gradient_of_head if memory is training_memory else 0)
    wide = dataclasses.replace(CONFIG, vocab_size=2**20)
    full, more = (memory(wide, batch=1, length=length).activations for length in (32, 33))
    a_token = two - one - 8 * copies * 4 * CONFIG.vocab_size
    assert more - full == a_token / 8, "with 2**25 logits a loss goes by chunks"


def test_shards_divide_what_is_held_and_gather_what_is_computed_with() -> None:
    config = SCALES["llama2-7b"]
    sizes = {"batch": 1, "length": 2048, "precision": "bfloat16"}
    whole, eighth = (training_memory(config, **sizes, shards=shards) for shards in (1, 8))
    assert eighth.optimizer * 8 == pytest.approx(whole.optimizer, rel=1e-6)
    assert eighth.activations == whole.activations
    layer, vocabulary = 202_383_360, 2 * 32_000 * 4096
    assert eighth.weights == pytest.approx(whole.weights / 8 + 4 * (layer + vocabulary), rel=1e-3)


def test_reading_takes_weights_and_a_layers_states() -> None:
    config = SCALES["60m"]
    some, more = (reading_memory(config, batch=1, length=length) for length in (1000, 2000))
    assert some.weights == 4 * 85_074_432
    # Residual, its norm and the result; gate, activated gate and up.
    assert more.peak - some.peak == 1000 * 4 * (3 * 512 + 3 * 2048)
    narrow = reading_memory(config, batch=1, length=1000, precision="bfloat16")
    copies = narrow.peak - some.peak + 1000 * 2 * 3 * 2048
    assert copies == pytest.approx(2 * 33_562_624, rel=1e-3)
    assert some.peak > some.weights + 4 * CHUNK_LOGITS
