"""The memory that a decoder takes: weights, gradients, AdamW's state, activations. Torch-free.

Bytes of one worker at its peak, for tensors alone: no allocator keeps to them exactly. Sizes are W
hidden_size, Q num_heads·head_dim, K num_kv_heads·head_dim, I intermediate_size, V vocab_size, P all
parameters; products of matrices have b bytes a number, 4 in float32 and 2 under bfloat16 autocast.

Weights and gradients have 4·P bytes each, and AdamW 8·P (Loshchilov & Hutter, arXiv 1711.05101: two
moments). For the backward pass a layer keeps, for each token,

    norms         16·W  their inputs and normalised states, in float32
    attention     b·(W + 2·Q + 2·K) + 4·num_heads  its input, q, k, v, result, softmax's scale
    feed-forward  b·(W + 4·I)  its input, gate, activated gate, up and product; ReLU: b·(W + I)

and, in bfloat16, a copy of its matrices, and one of the input for each product with it. Scores are
never held. With gradient checkpointing all layers keep 4·W, and one at a time the rest. The head
keeps 12·W for each token, and its own gradient twice, 8·V·W (12·V·W in bfloat16, whose products are
widened first); a loss holds CHUNK_LOGITS logits at a time, or all where they are fewer. Backward
through a feed-forward block takes b·3·I for each token.

Gradients appear as activations go, so a step peaks at the larger of the two, unless gradients are
there before, from an earlier micro-batch. Left out are what a position embedding itself keeps, and
the mask of packed documents, which attention without a bias needs: length² bytes a sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fope_lab.model.config import CHUNK_LOGITS, ModelConfig, parameters

WIDE = 4
NUMBER: Mapping[str, int] = MappingProxyType({"float32": 4, "bfloat16": 2})
"""Bytes of a number in products of matrices, by precision."""

GRADIENTS_OF_HEAD: Mapping[int, int] = MappingProxyType({4: 2, 2: 3})
"""How often the head's gradient is there at once, by the bytes of a number."""

COPIES_OF_LOGITS: Mapping[int, int] = MappingProxyType({4: 1, 2: 2})
"""How often a chunk of logits is there while its gradient is made, by the bytes of a number: in
float32 one becomes the other in place."""

KEPT_INNER: Mapping[str, int] = MappingProxyType({"swiglu": 4, "geglu": 4, "relu": 1})
"""Of how many numbers a feed-forward block keeps intermediate_size, by its kind."""

KEPT_INPUTS: Mapping[str, int] = MappingProxyType({"swiglu": 5, "geglu": 5, "relu": 4})
"""Of how many inputs autocast makes a copy: of q, k and v, of gate and up."""

KEPT_BY_QK_NORM: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {"none": lambda number: 0, "layer": lambda number: number, "rms": lambda number: 2 * WIDE}
)
"""Bytes that QK-norm keeps for each dimension of Q + K, from those of a number."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes by what they hold, and how many there are at once at the peak."""

    weights: int
    gradients: int = 0
    optimizer: int = 0
    activations: int
    peak: int


def training_memory(
    config: ModelConfig,
    *,
    batch: int,
    length: int,
    precision: str = "float32",
    gradient_checkpointing: bool = False,
    micro_batches: int = 1,
    learned: int = 0,
    shards: int = 1,
) -> Memory:
    """Of a step of AdamW on `micro_batches` batches, one after another, of `batch` sequences.

    `learned` are parameters of the position embedding. With `shards` (FSDP2) a worker holds that
    share of weights, gradients and optimizer, and whole what it computes with: the token embedding,
    the head and a layer.
    """
    tokens, number = batch * length, NUMBER[precision]
    size = parameters(config)
    total = size.total + learned
    weights = gradients = WIDE * -(-total // shards)
    if shards > 1:
        gathered = WIDE * (size.head + size.embedding + _of_layer(config))
        weights, gradients = weights + gathered, gradients + gathered
    kept = KEPT_OF_LAYERS[gradient_checkpointing](config, number, tokens)
    backward = 3 * number * config.intermediate_size * tokens
    activations = kept + backward + _head(config, number, tokens)
    optimizer = 2 * WIDE * -(-total // shards)
    held = gradients + activations if micro_batches > 1 else max(gradients, activations)
    return Memory(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=activations,
        peak=weights + optimizer + held,
    )


def reading_memory(
    config: ModelConfig,
    *,
    batch: int,
    length: int,
    precision: str = "float32",
    learned: int = 0,
) -> Memory:
    """Of reading `batch` sequences, forward only, with the logits of a loss at a time.

    A layer holds its input, and its feed-forward block the input and what is multiplied.
    """
    number = NUMBER[precision]
    weights = WIDE * (parameters(config).total + learned)
    inner = min(KEPT_INNER[config.feed_forward], 3) * config.intermediate_size
    heads = (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    a_token = 3 * WIDE * config.hidden_size + number * max(inner, heads)
    copies = _copies(config, number) * config.num_layers
    tokens = batch * length
    activations = tokens * a_token + copies + 2 * _logits(config, tokens)
    return Memory(weights=weights, activations=activations, peak=weights + activations)


def _all_layers(config: ModelConfig, number: int, tokens: int) -> int:
    return config.num_layers * (_kept(config, number) * tokens + _copies(config, number))


def _inputs_and_a_layer(config: ModelConfig, number: int, tokens: int) -> int:
    """Autocast keeps the copies of all matrices to the end of the forward pass."""
    inputs = config.num_layers * WIDE * config.hidden_size * tokens
    copies = config.num_layers * _copies(config, number)
    return inputs + max(copies, _all_layers(config, number, tokens) // config.num_layers)


KEPT_OF_LAYERS: Mapping[bool, Callable[[ModelConfig, int, int], int]] = MappingProxyType(
    {False: _all_layers, True: _inputs_and_a_layer}
)
"""Bytes that the layers keep for a backward pass, by gradient_checkpointing."""


def _kept(config: ModelConfig, number: int) -> int:
    """Bytes that a layer keeps for the backward pass, for each token."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    norms = 4 * WIDE * config.hidden_size
    qk_norm = KEPT_BY_QK_NORM[config.qk_norm](number) * (queries + keys)
    inner = KEPT_INNER[config.feed_forward] * config.intermediate_size
    inputs = (KEPT_INPUTS[config.feed_forward] if number < WIDE else 2) * config.hidden_size
    products = inputs + 2 * queries + 2 * keys + inner
    return norms + qk_norm + number * products + WIDE * config.num_heads


def _copies(config: ModelConfig, number: int) -> int:
    """Bytes of a layer's matrices in a narrower precision, which the backward pass needs too."""
    return number * _of_layer(config) if number < WIDE else 0


def _of_layer(config: ModelConfig) -> int:
    """Parameters of a layer, and a layer's share of the final norm."""
    return parameters(config).body // config.num_layers


def _head(config: ModelConfig, number: int, tokens: int) -> int:
    """Bytes of the final norm, the loss and the head's gradient."""
    states = 3 * WIDE * config.hidden_size * tokens
    gradient = GRADIENTS_OF_HEAD[number] * WIDE * config.vocab_size * config.hidden_size
    return states + gradient + COPIES_OF_LOGITS[number] * _logits(config, tokens)


def _logits(config: ModelConfig, tokens: int) -> int:
    """Bytes of the logits that a loss holds at a time."""
    return WIDE * min(CHUNK_LOGITS, tokens * config.vocab_size)
