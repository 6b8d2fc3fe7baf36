"""Records the queries and keys of every layer of a model, one layer at a time.

They are taken from the running model, after q_norm and k_norm and before any rotation, so they are
exact for every model that loads as a Decoder, with grouped queries, QK-norm or from Hugging Face.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fope_lab.embeddings.module import PositionEmbedding
    from fope_lab.model.decoder import Decoder


def record(
    model: Decoder, tokens: Tensor, positions: Tensor | None = None
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield, for each layer, its index, its queries (batch, num_heads, length, head_dim) and its
    keys (batch, num_kv_heads, length, head_dim), before rotation.

    `tokens` (batch, length) are whole sequences on the model's device, at `positions` (length,), by
    default those of the embedding. A layer runs when the iterator reaches it, and nothing is kept
    afterwards. `embedding_of(model, layer).rotate(q, k, positions)` applies the rotation.
    """
    import torch

    hidden, positions = _into_first_layer(model, tokens, positions)
    for index, layer in enumerate(model.layers):
        embedding = embedding_of(model, index)
        attention = cast("nn.Module", layer.self_attn)
        norms = (attention.q_norm, attention.k_norm)
        with torch.inference_mode(), _outputs(cast("tuple[nn.Module, ...]", norms)) as outputs:
            hidden = layer(hidden, positions, embedding, embedding.cos_sin(positions))
        split = (-1, model.config.head_dim)
        q, k = (output.unflatten(-1, split).transpose(1, 2) for output in outputs)
        yield index, q, k


def embedding_of(model: Decoder, layer: int) -> PositionEmbedding:
    """Return the position embedding of a layer: its own, or the one shared by all layers."""
    embeddings = model.position_embeddings
    return cast("PositionEmbedding", embeddings[layer % len(embeddings)])


class _ReachedError(Exception):
    """Raised at the first layer, with its inputs, to stop the forward pass there."""


def _into_first_layer(
    model: Decoder, tokens: Tensor, positions: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the hidden states (batch, length, width) before the first layer, and the positions."""
    import torch

    def stop(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        raise _ReachedError(*inputs[:2])

    hook = model.layers[0].register_forward_pre_hook(stop)
    try:
        with torch.inference_mode():
            model.hidden(tokens, positions)
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

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        outputs.append(output)

    hooks = [module.register_forward_hook(keep) for module in modules]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()
