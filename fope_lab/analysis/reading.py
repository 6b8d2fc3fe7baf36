"""What a model makes of a text: queries, keys and attention weights, one layer at a time.

Queries, keys and values are taken from the running model, after q_norm and k_norm and before any
rotation, so they are exact for every model that loads as a Decoder, with grouped queries, QK-norm
or from Hugging Face. Attention weights are computed from them, since fused attention never
materialises its own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Floats, Progress, Subject
from fope_lab.data.problems import DataError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from fope_lab.embeddings.module import PositionEmbedding, QueryScaling
    from fope_lab.embeddings.scores import Scores
    from fope_lab.model.attention import Attention
    from fope_lab.model.decoder import Decoder
    from fope_lab.model.seen import Block, Seen

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
    yet rotated. `scores` are those of all pairs of tokens, of which a query has `seen` some."""

    layer: int
    q: Tensor
    k: Tensor
    embedding: PositionEmbedding
    positions: Tensor
    v: Tensor
    scores: Scores
    seen: Seen


def record(model: Decoder, tokens: Tensor) -> Iterator[Reading]:
    """Yield what each layer makes of whole sequences of tokens (batch, length), which are on the
    model's device, at the positions of the embedding.

    A layer runs when the iterator reaches it, and nothing is kept afterwards.
    """
    import torch

    from fope_lab.model.scores import consecutive
    from fope_lab.model.seen import Seen

    hidden, positions = _into_first_layer(model, tokens)
    seen_of = functools.partial(Seen.of, tokens.shape[1], tokens.shape[1], None)
    scales = dict(model.query_scales.items())
    for index, layer in enumerate(model.layers):
        embedding = embedding_of(model, index)
        attention = cast("Attention", layer.self_attn)
        modules = (layer.input_layernorm, attention.q_norm, attention.k_norm, attention.v_proj)
        scale = cast("QueryScaling | None", scales.get(str(index)))
        seen = seen_of(model.plans[index].window)
        with torch.inference_mode(), _outputs(cast("tuple[nn.Module, ...]", modules)) as outputs:
            at = embedding.places(positions, steps=consecutive(positions, embedding))
            hidden = layer(hidden, embedding, at, None, seen.window, scale)
        states, *heads = outputs
        split = (-1, model.config.head_dim)
        q, k, v = (output.unflatten(-1, split).transpose(1, 2) for output in heads)
        with torch.inference_mode():
            at = embedding.places(positions)
            kept = embedding.streams(states, q, k, at)
            scores = attention.scores(embedding, q, kept, at, seen, scale)
        yield Reading(index, q, k, embedding, positions, v, scores, seen)


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
    number = model.plans[layer].tensors
    return cast("PositionEmbedding", model.position_embeddings[number])


class _ReachedError(Exception):
    """Raised at the first layer, with its inputs, to stop the forward pass there."""


def _into_first_layer(model: Decoder, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the hidden states (batch, length, width) before the first layer, and the positions."""
    import torch

    def stop(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        raise _ReachedError(inputs[0], inputs[2].positions)

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


def scores_of(
    embedding: PositionEmbedding, q: Tensor, k: Tensor, positions: Tensor, hidden: Tensor
) -> Scores:
    """The scores of all pairs of tokens at positions (length,), from their queries and keys before
    rotation, and from the layer's normalised input `hidden` (batch, length, width)."""
    at = embedding.places(positions)
    return embedding.scores(q, embedding.streams(hidden, q, k, at), at)


def attention_logits(scores: Scores, seen: Seen) -> Tensor:
    """Return the attention logits between all pairs of tokens, (batch, num_heads, length, length),
    in float32 or wider, whatever the model's dtype. Those that a query does not see are there, but
    a method that sees hidden states may give them no meaning."""
    from fope_lab.model.exact import logits_of

    return logits_of(scores, _all(seen), _wide(scores.q))


def attention_weights(scores: Scores, seen: Seen) -> Tensor:
    """Return attention weights (batch, num_heads, length, length), 0 for what a query does not see.
    Rows sum to 1, unless the embedding has another place for some of the weight."""
    from fope_lab.model.exact import weights_of

    return weights_of(scores, seen, _all(seen), _wide(scores.q))


def _all(seen: Seen) -> Block:
    from fope_lab.model.seen import Block

    return Block(slice(0, seen.queries), slice(0, seen.keys))


def _wide(x: Tensor) -> torch.dtype:
    import torch

    return torch.promote_types(x.dtype, torch.float32)


def attention_patterns(model: Decoder, tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield, for each layer, its index and its attention weights (batch, num_heads, length, length)
    on tokens (batch, length), computed when the iterator reaches the layer.

    They take a small multiple of 4 bytes per pair of tokens and head.
    """
    import torch

    for at in record(model, tokens):
        with torch.inference_mode():
            yield at.layer, attention_weights(at.scores, at.seen)


def frequencies_of(model: Decoder) -> Floats:
    """Return the frequencies of the pairs in radians per token (head_dim/2,), from fast to slow; 0
    for pairs that do not rotate. Raises DataError if the layers differ in them, or if only a part
    of each head rotates, in pairs of its own."""
    pairs = model.config.head_dim // 2
    frequencies, *others = (embedding_of(model, i).inv_freq for i in range(len(model.layers)))
    sizes = {None if each is None else tuple(each.tolist()) for each in (frequencies, *others)}
    if len(sizes) > 1:
        raise DataError("this analysis needs frequencies that are the same in all layers")
    if frequencies is None:
        return np.zeros(pairs)
    if len(frequencies) != pairs:
        raise DataError("this analysis needs an embedding that rotates whole heads")
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
