"""What a model makes of a text: queries, keys and attention weights, one layer at a time.

Queries, keys and values are taken from the running model, after q_norm and k_norm and before any
rotation, so they are exact for every model that loads as a Decoder, with grouped queries, QK-norm
or from Hugging Face. Attention weights, softmax(q·kᵀ/√head_dim + bias), are computed from them,
since fused attention never materialises its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Floats, Progress, Subject
from fope_lab.data.problems import DataError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fope_lab.embeddings.module import PositionEmbedding
    from fope_lab.model.decoder import Decoder

PAIRS = "pair of dimensions, fastest to slowest"
"""The label of an axis of pairs."""


class ReadsPassages:
    """Part of an analysis of a text: `sequences` passages of `length` tokens each."""

    sequences: int
    length: int

    @property
    def tokens(self) -> int:
        """The number of tokens in all sequences."""
        return self.sequences * self.length

    def passages(self, subject: Subject) -> NDArray[np.int64]:
        """Return the `passages` (sequences, length) of the subject's text."""
        return passages(subject, self.sequences, self.length)


def passages(subject: Subject, count: int, length: int) -> NDArray[np.int64]:
    """Return the tokens (count, length) of the subject's text, in order.

    Each passage begins with the tokenizer's prefix, such as Gemma's beginning-of-text token, and
    omits as many tokens at its end. Raises DataError if the prefix fills a passage, or if the
    model's vocabulary lacks a token.
    """
    prefix = np.asarray(subject.tokenizer.prefix_ids, np.int64)
    if len(prefix) >= length:
        message = f"length: found {length}, needs more than the {len(prefix)} tokens of the prefix"
        raise DataError(message)
    text = np.asarray(subject.tokens[: count * length], np.int64).reshape(count, length)
    largest, vocabulary = int(text.max()), subject.model.config.vocab_size
    if largest >= vocabulary:
        raise DataError(
            f"the text has token {largest}, but the model's vocabulary has {vocabulary} tokens"
        )
    begins = np.broadcast_to(prefix, (count, len(prefix)))
    return np.concatenate((begins, text[:, : length - len(prefix)]), axis=1)


def words(subject: Subject, ids: NDArray[Any]) -> list[str]:
    """Return each token (n,) as printable text for a figure, with spaces and line breaks marked."""
    marks = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    texts = (subject.tokenizer.decode([int(token)]) for token in ids)
    return [
        "".join(marks.get(letter, letter if letter.isprintable() else "·") for letter in text)
        for text in texts
    ]


class Reading(NamedTuple):
    """What a layer makes of tokens at `positions` (length,): queries (batch, num_heads, length,
    head_dim), keys and values (batch, num_kv_heads, length, head_dim), which `embedding` has not
    yet rotated."""

    layer: int
    q: Tensor
    k: Tensor
    embedding: PositionEmbedding
    positions: Tensor
    v: Tensor


def record(model: Decoder, tokens: Tensor) -> Iterator[Reading]:
    """Yield what each layer makes of whole sequences of tokens (batch, length), which are on the
    model's device, at the positions of the embedding.

    A layer runs when the iterator reaches it, and nothing is kept afterwards.
    """
    import torch

    hidden, positions = _into_first_layer(model, tokens)
    for index, layer in enumerate(model.layers):
        embedding = embedding_of(model, index)
        attention = cast("nn.Module", layer.self_attn)
        modules = (attention.q_norm, attention.k_norm, attention.v_proj)
        with torch.inference_mode(), _outputs(cast("tuple[nn.Module, ...]", modules)) as outputs:
            hidden = layer(hidden, positions, embedding, embedding.cos_sin(positions))
        split = (-1, model.config.head_dim)
        q, k, v = (output.unflatten(-1, split).transpose(1, 2) for output in outputs)
        yield Reading(index, q, k, embedding, positions, v)


def read(
    model: Decoder, rows: NDArray[np.int64], progress: Progress = lambda done, total: None
) -> Iterator[tuple[int, Reading]]:
    """Yield the number of a row and what a layer makes of it, for each of rows (passages, length)
    and each layer. Memory does not grow with the rows, as the model reads one at a time."""
    import torch

    for i, row in enumerate(rows):
        for reading in record(
            model, torch.from_numpy(row)[None].to(model.embed_tokens.weight.device)
        ):
            yield i, reading
        progress(i + 1, len(rows))


def embedding_of(model: Decoder, layer: int) -> PositionEmbedding:
    """Return the position embedding of a layer: its own, or the one shared by all layers."""
    embeddings = model.position_embeddings
    return cast("PositionEmbedding", embeddings[layer % len(embeddings)])


class _ReachedError(Exception):
    """Raised at the first layer, with its inputs, to stop the forward pass there."""


def _into_first_layer(model: Decoder, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the hidden states (batch, length, width) before the first layer, and the positions."""
    import torch

    def stop(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        raise _ReachedError(*inputs[:2])

    hook = model.layers[0].register_forward_pre_hook(stop)
    try:
        with torch.inference_mode():
            model.hidden(tokens)
    except _ReachedError as reached:
        states, positions = reached.args
        return states, positions
    finally:
        hook.remove()
    raise AssertionError("the model ran without its first layer")


@contextmanager
def _outputs(modules: tuple[nn.Module, ...]) -> Iterator[list[Tensor]]:
    """Collect the outputs of the modules in the `with` block, in the order in which they run."""
    outputs: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda *run: outputs.append(run[2])) for module in modules
    ]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def attention_logits(
    embedding: PositionEmbedding, q: Tensor, k: Tensor, positions: Tensor
) -> Tensor:
    """Return the attention logits between all pairs of tokens, without a causal mask:
    (batch, num_heads, length, length), in float32 or wider, whatever the model's dtype.

    The arguments are those of a Reading.
    """
    import torch

    from fope_lab.model.block_attention import PairBias

    q, k = embedding.rotate(q, k, positions)
    wide = torch.promote_types(q.dtype, torch.float32)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    logits = q.to(wide) @ k.to(wide).mT / math.sqrt(q.shape[-1])
    if embedding.biases:
        bias = PairBias(embedding, positions)  # computes a bounded number of pairs at once
        logits += bias.rows(bias.learned, 0, positions.shape[-1])
    return logits


def attention_weights(
    embedding: PositionEmbedding, q: Tensor, k: Tensor, positions: Tensor
) -> Tensor:
    """Return causal attention weights (batch, num_heads, length, length): rows sum to 1, and the
    weights above the diagonal are 0. The arguments are those of a Reading."""
    import torch

    logits = attention_logits(embedding, q, k, positions)
    later = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).triu(1)
    return logits.masked_fill_(later, -math.inf).softmax(dim=-1)


def attention_patterns(model: Decoder, tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield, for each layer, its index and its attention weights (batch, num_heads, length, length)
    on tokens (batch, length), computed when the iterator reaches the layer.

    They take a small multiple of 4 bytes per pair of tokens and head.
    """
    import torch

    for layer, q, k, embedding, positions, _ in record(model, tokens):
        with torch.inference_mode():
            yield layer, attention_weights(embedding, q, k, positions)


def frequencies_of(model: Decoder) -> Floats:
    """Return the frequencies of the pairs in radians per token (head_dim/2,), from fast to slow; 0
    for pairs that do not rotate."""
    frequencies = embedding_of(model, 0).inv_freq
    if frequencies is None:
        return np.zeros(model.config.head_dim // 2)
    return np.asarray(frequencies.double().cpu().numpy(), np.float64)


def rotated_frequencies(model: Decoder, analysis: str) -> Floats:
    """Return `frequencies_of` a model.

    Raises DataError, which names the analysis, if the model's embedding rotates nothing.
    """
    embedding = embedding_of(model, 0)
    if not embedding.rotates:
        name = embedding.definition.name
        raise DataError(f"{analysis} needs an embedding that rotates, but {name} does not")
    return frequencies_of(model)


def by_pair(x: Tensor) -> Tensor:
    """Reshape (…, head_dim) to (…, 2, head_dim/2): pair i is dimensions i and i + head_dim/2."""
    return x.unflatten(-1, (2, -1))


def pair_norms(x: Tensor) -> Tensor:
    """Return the 2-norm of each pair of x (…, head_dim): float32 (…, head_dim/2)."""
    return by_pair(x.float()).norm(dim=-2)


def quarter_shares(values: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return the shares of the sum over pairs that the fastest and the slowest quarter have.

    `values` (…, pairs) is ordered from the fastest to the slowest pair; each share is (…), and 0
    where the sum is 0. Uniform values give a quarter each.
    """
    quarter = max(values.shape[-1] // 4, 1)
    total = values.sum(axis=-1)
    total = np.where(total == 0, 1.0, total)
    return values[..., :quarter].sum(axis=-1) / total, values[..., -quarter:].sum(axis=-1) / total
