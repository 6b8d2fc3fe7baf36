"""The sizes of a decoder, the named scales, and their parameters and FLOPs. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from fope_lab.config.annotations import Doc, Interval

if TYPE_CHECKING:
    from fope_lab.embeddings.base import Embedding

Count = Annotated[int, Interval(ge=1, le=1_000_000)]  # a larger size is a slip of the finger

CHUNK_LOGITS = 2**25
"""The logits that a loss holds at a time: 128 MiB of float32, 667 tokens of a vocabulary of 50,304.
Smaller chunks are slower, since each reads the head's weights and adds to their gradient: at 16 MiB
this takes a fifth of the loss's time on a CPU."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder; by default Llama's: RMSNorm, no biases, grouped-query attention, gates.

    GPT-2's block is `norm: layer`, `biases: true`, `feed_forward: gelu_tanh` and, for its head,
    `tie_embeddings: true`. nanoGPT's without biases is the same with `biases: false` and
    `feed_forward: gelu`. The defaults of sizes, those of the FoPE paper's models, are filled in, so
    that configurations with the same sizes are equal. Raises ValueError if num_heads is not
    divisible by num_kv_heads, or qk_norm does not go with norm.
    """

    num_layers: Annotated[Count, Doc("The number of layers.")]
    num_heads: Annotated[Count, Doc("The number of attention heads of a layer.")]
    head_dim: Annotated[Count, Doc("The dimensions of a head.")]
    num_kv_heads: Annotated[
        Count, Doc("The number of key-value heads; the default is num_heads.")
    ] = None  # type: ignore[assignment]  # never None after __post_init__
    hidden_size: Annotated[
        Count, Doc("The dimensions of the hidden state; the default is num_heads × head_dim.")
    ] = None  # type: ignore[assignment]
    intermediate_size: Annotated[
        Count, Doc("The dimensions of the feed-forward; the default is 4 × hidden_size.")
    ] = None  # type: ignore[assignment]
    vocab_size: Annotated[Count, Doc("The number of different tokens.")] = 50_304
    tie_embeddings: Annotated[
        bool, Doc("Whether the head and the token embeddings share their weights.")
    ] = False
    norm: Annotated[
        Literal["rms", "shifted_rms", "layer"],
        Doc(
            "The norms: RMSNorm with a gain, or with the gain 1 + weight, as in Gemma, or LayerNorm"
            " with a gain and, with `biases: true`, a bias."
        ),
    ] = "rms"
    norm_place: Annotated[
        Literal["pre", "post", "both"],
        Doc(
            "Where a layer has norms: pre, before attention and feed-forward; post, after each of"
            " them, as in OLMo 2; both, as in Gemma 2."
        ),
    ] = "pre"
    norm_eps: Annotated[float, Interval(gt=0), Doc("The ε of the norms.")] = 1e-5
    biases: Annotated[
        bool | Literal["qkv", "attention"],
        Doc(
            "Which projections add a bias. true: all but the head, and each LayerNorm. qkv: those"
            " of queries, keys and values, as in Qwen2. attention: these and attention's output."
        ),
    ] = False
    qk_norm: Annotated[
        Literal["none", "layer", "rms", "head_rms"],
        Doc(
            "The normalisation of queries and keys. layer: a LayerNorm without parameters for each"
            " head. rms: an RMSNorm over all heads, with a learned gain. head_rms: an RMSNorm for"
            " each head, whose gain all heads share, as in Qwen3; its gain is that of `norm`."
        ),
    ] = "none"
    parallel: Annotated[
        bool,
        Doc("Whether the feed-forward reads what attention reads, not its result, as in GPT-NeoX."),
    ] = False
    attention_cap: Annotated[
        float | None,
        Interval(gt=0),
        Doc("The c of attention logits c·tanh(z/c) in place of z, as in Gemma 2."),
    ] = None
    logit_cap: Annotated[
        float | None,
        Interval(gt=0),
        Doc("The c of the logits of tokens, c·tanh(z/c) in place of z, as in Gemma 2."),
    ] = None
    score_size: Annotated[
        float | None,
        Interval(gt=0),
        Doc("Attention logits are divided by its root; the default is head_dim."),
    ] = None
    feed_forward: Annotated[
        Literal["swiglu", "geglu", "relu", "gelu", "gelu_tanh"],
        Doc(
            "The feed-forward: gated by SiLU or by GELU (Shazeer, arXiv 2002.05202), or plain, with"
            " ReLU, GELU, or GELU's approximation by tanh, which GPT-2 has."
        ),
    ] = "swiglu"
    scale_embeddings: Annotated[
        bool, Doc("Whether token embeddings are multiplied by √hidden_size, as in Gemma.")
    ] = False
    dropout: Annotated[
        float,
        Interval(ge=0, lt=1),
        Doc(
            "The share of numbers that training sets to 0, as in GPT-2: of the embeddings, of the"
            " attention weights, and of what each block adds to the hidden state."
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        self._fill("num_kv_heads", self.num_heads)
        self._fill("hidden_size", self.num_heads * self.head_dim)
        self._fill("intermediate_size", 4 * self.hidden_size)
        if self.score_size == self.head_dim:
            object.__setattr__(self, "score_size", None)  # its default
        if self.qk_norm == "head_rms" and self.norm == "layer":
            raise ValueError("qk_norm head_rms has the gain of an RMSNorm, but norm is layer")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads {self.num_heads} is not divisible by num_kv_heads {self.num_kv_heads}"
            )

    @property
    def head_sizes(self) -> dict[str, int]:
        """The sizes that a position embedding depends on, by their names in its `Shape`."""
        names = ("head_dim", "num_heads", "num_kv_heads", "hidden_size")
        return {name: getattr(self, name) for name in names}

    def _fill(self, name: str, value: int) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)


BRANCHES: Mapping[str, int] = {"swiglu": 2, "geglu": 2, "relu": 1, "gelu": 1, "gelu_tanh": 1}
"""The projections of a feed-forward to its intermediate size, by its kind."""

NORMS_OF_LAYER: Mapping[str, int] = {"pre": 2, "post": 2, "both": 4}
"""How many norms a layer has beside those of QK-norm, by `norm_place`."""

BIASED: Mapping[str, tuple[bool | str, ...]] = {
    "qkv": (True, "attention", "qkv"),
    "o_proj": (True, "attention"),
    "mlp": (True,),
}
"""The values of `biases` with which a projection adds one."""

SCALES: Mapping[str, ModelConfig] = {
    "tiny": ModelConfig(num_layers=2, num_heads=4, head_dim=32, intermediate_size=256),
    "mini": ModelConfig(num_layers=4, num_heads=4, head_dim=64, intermediate_size=768),
    "posgen": ModelConfig(num_layers=2, num_heads=8, head_dim=64, feed_forward="relu"),
    "20m": ModelConfig(num_layers=8, num_heads=4, head_dim=64),
    "60m": ModelConfig(num_layers=8, num_heads=8, head_dim=64),
    "180m": ModelConfig(num_layers=8, num_heads=8, head_dim=128),
    "1.2b": ModelConfig(num_layers=16, num_heads=16, head_dim=128),
    "smollm-1.7b": ModelConfig(
        num_layers=24,
        num_heads=32,
        head_dim=64,
        intermediate_size=8192,
        vocab_size=49_152,
        tie_embeddings=True,
    ),
    "gemma-2b": ModelConfig(
        num_layers=18,
        num_heads=8,
        head_dim=256,
        num_kv_heads=1,
        intermediate_size=16_384,
        vocab_size=256_000,
        tie_embeddings=True,
        norm="shifted_rms",
        norm_eps=1e-6,
        feed_forward="geglu",
        scale_embeddings=True,
    ),
    "llama2-7b": ModelConfig(
        num_layers=32, num_heads=32, head_dim=128, intermediate_size=11_008, vocab_size=32_000
    ),
    "llama2-13b": ModelConfig(
        num_layers=40, num_heads=40, head_dim=128, intermediate_size=13_824, vocab_size=32_000
    ),
}
"""The named sizes. `tiny` and `mini` train on a CPU. `posgen` is the model of Resonance RoPE's §5:
two layers of the size of T5-small. `20m` (Table 2) to `1.2b` (Table 3) are FoPE's models, whose
names count parameters without the input embedding at a vocabulary of 50,304. The others are
published models."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The numbers of parameters of a decoder.

    `body` are the layers and the final norm, `head` the output head, `embedding` the input
    embedding. A tied head has 0, since its parameters are those of the input embedding.
    """

    body: int
    head: int
    embedding: int

    @property
    def total(self) -> int:
        """All parameters of the decoder."""
        return self.body + self.head + self.embedding


def parameters(config: ModelConfig) -> Parameters:
    """Count the parameters of a decoder, without those of its position embedding."""
    vocabulary = config.vocab_size * config.hidden_size
    return Parameters(
        body=projection_weights(config) + _biases(config) + _norms(config),
        head=0 if config.tie_embeddings else vocabulary,
        embedding=vocabulary,
    )


def flops_per_token(
    config: ModelConfig,
    length: int,
    embedding: Embedding | None = None,
    adapted: int | None = None,
) -> float:
    """The FLOPs of training on one token of a sequence of `length` tokens, forward and backward.

    They are six for each weight of a matrix product, including the head but not norms, biases and
    the lookup of embeddings, and those of causal attention at its mean context, (length + 1)/2
    without the windows of the layers of an `embedding`. A forward pass alone takes a third of them.
    If only `adapted` parameters of adapters learn, the weights have no gradients, which a third of
    their FLOPs would compute.
    """
    weights: float = projection_weights(config) + config.vocab_size * config.hidden_size
    if adapted is not None:
        weights = weights * 2 / 3 + adapted
    if embedding is None:
        attended = config.num_layers * config.num_heads * config.head_dim * (length + 1)
        return 6 * (weights + attended)
    from fope_lab.embeddings.base import Shape

    shape = Shape(**config.head_sizes, train_length=length)
    for kind, count in embedding.counts(config.num_layers).items():
        of_token, of_pair = kind.embedding.products(shape)
        seen = _seen(length, kind.window) * config.num_heads  # twice: a whole number mostly
        of_pairs = seen * config.head_dim + (seen * of_pair / 2 if of_pair else 0)
        weights += count * (of_token + of_pairs)
    return 6 * weights


def _seen(length: int, window: int | None) -> float:
    """Twice the mean number of tokens that a query sees."""
    if window is None or window >= length:
        return length + 1
    return window * (2 * length - window + 1) / length


def projection_weights(config: ModelConfig) -> int:
    """The weights of all projections but the head."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    inner = (BRANCHES[config.feed_forward] + 1) * config.intermediate_size
    return config.num_layers * config.hidden_size * (2 * queries + 2 * keys + inner)


def _biases(config: ModelConfig) -> int:
    """The biases of all projections; those of norms are counted with the norms."""
    inputs = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    inner = BRANCHES[config.feed_forward] * config.intermediate_size
    sizes = {"qkv": inputs, "o_proj": config.hidden_size, "mlp": inner + config.hidden_size}
    return config.num_layers * sum(sizes[of] for of, on in BIASED.items() if config.biases in on)


def _norms(config: ModelConfig) -> int:
    """The parameters of all norms: those of each layer, the final one, and those of QK-norm."""
    of_norm = 2 if config.norm == "layer" and config.biases is True else 1
    vectors = of_norm * config.hidden_size
    of_layer = NORMS_OF_LAYER[config.norm_place] * vectors
    if config.qk_norm == "rms":
        of_layer += (config.num_heads + config.num_kv_heads) * config.head_dim
    if config.qk_norm == "head_rms":
        of_layer += 2 * config.head_dim
    return config.num_layers * of_layer + vectors
