"""The memory that a decoder needs: weights, gradients, AdamW's state, activations. Torch-free.

Numbers are bytes of one worker at its peak, and count tensors only; an allocator needs more. Sizes
are W hidden_size, Q num_heads·head_dim, K num_kv_heads·head_dim, I intermediate_size, V vocab_size
and P all parameters. Matrix products have b bytes per number: 4 in float32, 2 under bfloat16
autocast.

Weights and gradients have 4·P bytes each, and AdamW 8·P (Loshchilov & Hutter, arXiv 1711.05101: two
moments). For the backward pass a layer keeps, for each token,

    norms         16·W  their inputs and normalised states, in float32; LayerNorm: 8·W
    attention     b·(W + 2·Q + 2·K) + 4·num_heads  its input, q, k, v, result, softmax's scale
    feed-forward  b·(W + 4·I)  its input, gate, activated gate, up and product; without a gate:
                  b·(W + 2·I), ReLU: b·(W + I)
    dropout       b·2·W  what the results of attention and feed-forward are multiplied by

and, in bfloat16, a copy of its matrices, and a copy of the input for each product with it. Scores
are never held. With gradient checkpointing all layers keep 4·W, and one layer at a time the rest.
With an adapter, norms keep their inputs alone, the input of a projection is kept if it has one,
and so are the results of A; the head has no gradient.
The head keeps 12·W for each token, and its own gradient twice, 8·V·W (12·V·W in bfloat16, whose
products are widened first). A loss holds CHUNK_LOGITS logits at a time, or all if they are fewer.
The backward pass of a feed-forward block needs b·3·I for each token.

Gradients are allocated while activations are freed, so that a step peaks at the larger of the two,
unless an earlier micro-batch has left gradients. A position embedding that computes from hidden
states adds what it says that it keeps; what others keep is not counted, nor are the weights of
attention without a bias, which a CPU holds if some are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fope_lab.model.adapter import PROJECTIONS, Adapter
from fope_lab.model.config import (
    BRANCHES,
    CHUNK_LOGITS,
    NORMS_OF_LAYER,
    ModelConfig,
    parameters,
    projection_weights,
)

if TYPE_CHECKING:
    from fope_lab.embeddings.base import Embedding

WIDE = 4
NUMBER: Mapping[str, int] = {"float32": 4, "bfloat16": 2}
"""The bytes of a number in matrix products, by precision."""

GRADIENTS_OF_HEAD: Mapping[int, int] = {4: 2, 2: 3}
COPIES_OF_LOGITS: Mapping[int, int] = {4: 1, 2: 2}
"""How many copies of the head's gradient, and of a chunk of logits, exist at once, by the bytes of
a number: in float32 the gradient replaces the logits in place."""
COPIES_OF_HEAD: Mapping[int, float] = {4: 0, 2: 0.5}
"""How many copies of a head without a gradient exist: its products have narrow numbers."""

KEPT_BY_NORM: Mapping[str, int] = {"rms": 2, "shifted_rms": 2, "layer": 1}
"""How many tensors of hidden_size a norm keeps, by its kind."""
KEPT_BY_QK_NORM: Mapping[str, int] = {"none": 0, "rms": 2 * WIDE, "head_rms": 2 * WIDE}
"""The bytes that the norms of queries and keys keep of each number, by kind; layer: the bytes of a
number of matrix products."""

KEPT_INNER: Mapping[str, int] = {"swiglu": 4, "geglu": 4, "relu": 1, "gelu": 2, "gelu_tanh": 2}
"""How many tensors of intermediate_size a feed-forward block keeps, by its kind. The last is what
its second projection reads, which ReLU needs itself."""


ATTENTION, INNER = PROJECTIONS[:3], PROJECTIONS[4:6]
"""The projections that read the same states."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The bytes of each kind of tensor, and the largest number of bytes in use at once."""

    weights: int
    gradients: int = 0
    optimizer: int = 0
    activations: int
    peak: int


def training_memory(
    config: ModelConfig,
    embedding: Embedding | None = None,
    *,
    batch: int,
    length: int,
    precision: str = "float32",
    gradient_checkpointing: bool = False,
    micro_batches: int = 1,
    learned: int = 0,
    shards: int = 1,
    adapter: Adapter | None = None,
    optimizer: str = "adamw",
) -> Memory:
    """The memory of a step of an optimizer on `micro_batches` batches of `batch` sequences.

    `length` is in tokens, and `learned` counts the parameters of the position embedding. With
    `shards` (FSDP2) a worker holds that share of weights, gradients and optimizer state, and the
    whole tensors that it computes with: the token embedding, the head and one layer. With an
    `adapter` only its parameters and `learned` have gradients and moments. AdamW keeps two numbers
    of each parameter, and Muon one of those of the layers' projections.
    """
    tokens, number = batch * length, NUMBER[precision]
    size = parameters(config)
    added = 0 if adapter is None else adapter.parameters(config)
    total = size.total + learned + added
    trained = total if adapter is None else learned + added
    weights, gradients = WIDE * -(-total // shards), WIDE * -(-trained // shards)
    if shards > 1:
        gathered = WIDE * (size.head + size.embedding + _of_layer(config))
        weights, gradients = weights + gathered, gradients + (0 if adapter else gathered)
    kept, copies = _kept(config, number, adapter) * tokens, _copies(config, number)
    most, of_positions = _kept_by(embedding, config, length, number)
    layers = config.num_layers * (kept + copies) + of_positions * tokens
    if gradient_checkpointing:  # autocast keeps all copies until the end of the forward pass
        inputs = config.num_layers * WIDE * config.hidden_size * tokens
        layers = inputs + max(config.num_layers * copies, kept + copies + most * tokens)
    backward = 3 * number * config.intermediate_size * tokens
    activations = layers + backward + _head(config, number, tokens, adapter is None)
    moments = 2 * trained - (projection_weights(config) if optimizer == "muon" else 0)
    kept_by_optimizer = WIDE * -(-moments // shards)
    held = gradients + activations if micro_batches > 1 else max(gradients, activations)
    return Memory(
        weights=weights,
        gradients=gradients,
        optimizer=kept_by_optimizer,
        activations=activations,
        peak=weights + kept_by_optimizer + held,
    )


def reading_memory(
    config: ModelConfig, *, batch: int, length: int, precision: str = "float32", learned: int = 0
) -> Memory:
    """The memory of a forward pass over `batch` sequences of `length` tokens with a loss.

    A layer holds its input, and its feed-forward block its input and the factors of its product.
    `learned` counts the parameters of the position embedding.
    """
    number = NUMBER[precision]
    weights = WIDE * (parameters(config).total + learned)
    inner = min(KEPT_INNER[config.feed_forward], 3) * config.intermediate_size
    heads = (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    per_token = 3 * WIDE * config.hidden_size + number * max(inner, heads)
    copies = _copies(config, number) * config.num_layers
    tokens = batch * length
    activations = tokens * per_token + copies + 2 * _logits(config, tokens)
    return Memory(weights=weights, activations=activations, peak=weights + activations)


def _kept(config: ModelConfig, number: int, adapter: Adapter | None) -> int:
    """The bytes that a layer keeps for the backward pass, for each token."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    learns = PROJECTIONS if adapter is None else adapter.targets
    kept = (KEPT_BY_NORM[config.norm] if adapter is None else 1) * WIDE * config.hidden_size
    norms = NORMS_OF_LAYER[config.norm_place] * kept
    if config.parallel and config.norm_place != "post":  # two norms of the same states
        norms -= WIDE * config.hidden_size
    of_dimension = KEPT_BY_QK_NORM.get(config.qk_norm, number)
    qk_norm = (of_dimension if adapter is None else min(of_dimension, WIDE)) * (queries + keys)
    inner = KEPT_INNER[config.feed_forward]
    if "down_proj" not in learns and config.feed_forward != "relu":
        inner -= 1
    # Autocast copies the inputs of q, k and v, and of gate and up, one by one.
    reads = [sum(name in learns for name in of) for of in (ATTENTION, INNER)]
    reads[1] = min(reads[1], BRANCHES[config.feed_forward])
    copies = sum(reads) if number < WIDE else sum(map(bool, reads))
    dropped = 2 if config.dropout else 0
    products = (copies + dropped) * config.hidden_size + 2 * queries + 2 * keys
    products += inner * config.intermediate_size
    if adapter is not None:  # the results of A
        products += adapter.rank * len(adapter.targets)
    return norms + qk_norm + number * products + WIDE * config.num_heads


def _kept_by(
    embedding: Embedding | None, config: ModelConfig, length: int, number: int
) -> tuple[int, int]:
    """The bytes of each token that position embeddings keep: those of a layer at most, and all."""
    if embedding is None:
        return 0, 0
    from fope_lab.embeddings.base import Shape

    shape = Shape(**config.head_sizes, train_length=length)
    counts = embedding.counts(config.num_layers).items()
    kept = [(kind.embedding.kept(shape, number), count) for kind, count in counts]
    return max(each for each, _ in kept), sum(each * count for each, count in kept)


def _copies(config: ModelConfig, number: int) -> int:
    """The bytes of the copies of a layer's matrices in bfloat16, which the backward pass needs."""
    return number * _of_layer(config) if number < WIDE else 0


def _of_layer(config: ModelConfig) -> int:
    """The parameters of a layer, with its share of the final norm."""
    return parameters(config).body // config.num_layers


def _head(config: ModelConfig, number: int, tokens: int, learns: bool) -> int:
    """The bytes of the final norm, the loss and the head's gradient, if it learns."""
    states = 3 * WIDE * config.hidden_size * tokens
    copies = GRADIENTS_OF_HEAD[number] if learns else COPIES_OF_HEAD[number]
    gradient = int(copies * WIDE * config.vocab_size * config.hidden_size)
    copies = COPIES_OF_LOGITS[number] + 2 * (config.logit_cap is not None)
    return states + gradient + copies * _logits(config, tokens)


def _logits(config: ModelConfig, tokens: int) -> int:
    return WIDE * min(CHUNK_LOGITS, tokens * config.vocab_size)
