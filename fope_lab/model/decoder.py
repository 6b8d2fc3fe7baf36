"""The decoder-only language model: Llama's layers with any position embedding.

Parameters are named as in Hugging Face's Llama, less its `model.` prefix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fope_lab.embeddings.module import PositionEmbedding, build_embedding
from fope_lab.embeddings.spec import Spec, resolve_embedding
from fope_lab.model.attention import Attention, Documents
from fope_lab.model.cache import Cache
from fope_lab.model.config import ModelConfig
from fope_lab.model.feed_forward import FEED_FORWARDS
from fope_lab.model.loss import linear_cross_entropy
from fope_lab.model.uninitialized_linear import UninitializedLinear

INITIAL_DEVIATION = 0.02


class Output(NamedTuple):
    """What a forward pass returns: without labels the logits, with labels the loss."""

    logits: Tensor | None = None
    loss: Tensor | None = None


class DecoderLayer(nn.Module):
    """Pre-norm attention and feed-forward, each added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gradient_checkpointing = False
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FEED_FORWARDS[config.feed_forward](config)

    def forward(self, hidden: Tensor, *of_attention: Any, last: int | None = None) -> Tensor:
        """(batch, length, width) to the same, or to the `last` tokens of that; for the rest see
        `Attention.forward`."""
        if not (self.gradient_checkpointing and self.training and torch.is_grad_enabled()):
            return self._forward(hidden, *of_attention, last=last)
        # In here, so that what wraps the layer (FSDP2, say) acts once around both computations.
        # There is no dropout: no random state to preserve.
        computed: Tensor = checkpoint(
            self._forward,
            hidden,
            *of_attention,
            last=last,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        return computed

    def _forward(self, hidden: Tensor, *of_attention: Any, last: int | None = None) -> Tensor:
        mixed = self.self_attn(self.input_layernorm(hidden), *of_attention, last=last)
        hidden = (hidden if last is None else hidden[:, -last:]) + mixed
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Decoder(nn.Module):
    """A causal language model of `config` with the position embedding of `embedding`.

    `train_length` is the original training length in tokens, which embeddings may depend on.
    Weights depend on `config` and `seed` alone: models that differ in their embedding start equal.
    """

    def __init__(
        self, config: ModelConfig, embedding: Spec, *, train_length: int, seed: int = 0
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = resolve_embedding(embedding)
        self.train_length = train_length
        # nn.Embedding(…) would draw weights from the global generator (see UninitializedLinear).
        self.embed_tokens = nn.Embedding.from_pretrained(
            torch.empty(config.vocab_size, config.hidden_size), freeze=False
        )
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.lm_head = UninitializedLinear(config.hidden_size, config.vocab_size)
        self._tie_weights()
        self._draw_weights(seed)
        self.position_embeddings = nn.ModuleList(self._position_embeddings(seed))

    def _position_embeddings(self, seed: int) -> list[PositionEmbedding]:
        """One for each layer, or a single one where the layers share it."""
        config = self.config

        def build(layer: int) -> PositionEmbedding:
            return build_embedding(
                self.embedding,
                head_dim=config.head_dim,
                num_heads=config.num_heads,
                num_kv_heads=config.num_kv_heads,
                train_length=self.train_length,
                layer=layer,
                seed=seed,
            )

        first = build(0)
        rest = range(1, config.num_layers if first.definition.per_layer else 1)
        return [first, *map(build, rest)]

    @torch.no_grad()
    def _draw_weights(self, seed: int) -> None:
        """Normal(0, 0.02), and less by √(2·layers) for what is added to the residual stream."""
        device = self.embed_tokens.weight.device
        if device.type == "meta":  # weights come from a checkpoint, or are only counted
            return
        generator = torch.Generator(device).manual_seed(seed)
        residual = INITIAL_DEVIATION / math.sqrt(2 * self.config.num_layers)
        for name, weight in self.named_parameters():
            if weight.dim() == 1:  # the norms, which start at one
                continue
            added = name.endswith(("o_proj.weight", "down_proj.weight"))
            weight.normal_(0.0, residual if added else INITIAL_DEVIATION, generator=generator)

    def _tie_weights(self) -> None:
        if self.config.tie_embeddings:
            self.lm_head.weight = self.embed_tokens.weight

    def untied_state(self) -> dict[str, Tensor]:
        """The state without what it holds twice: the head's weight, if it is the embedding's."""
        state = self.state_dict()
        if self.config.tie_embeddings:
            del state["lm_head.weight"]
        return state

    def load_untied_state(self, state: Mapping[str, Tensor]) -> None:
        """Take the tensors of an `untied_state` as they are. Raises RuntimeError for others."""
        if self.config.tie_embeddings and "embed_tokens.weight" in state:
            state = {**state, "lm_head.weight": state["embed_tokens.weight"]}
        self.load_state_dict(state, assign=True)
        self._tie_weights()

    @property
    def gradient_checkpointing(self) -> bool:
        """Whether training keeps only the layers' inputs, and computes the layers once more in the
        backward pass: less memory, a third more time."""
        return any(cast(DecoderLayer, layer).gradient_checkpointing for layer in self.layers)

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, wanted: bool) -> None:
        for layer in self.layers:
            cast(DecoderLayer, layer).gradient_checkpointing = wanted

    def hidden(
        self,
        input_ids: Tensor,
        positions: Tensor | None = None,
        *,
        documents: Tensor | None = None,
        cache: Cache | None = None,
        last: int | None = None,
    ) -> Tensor:
        """Final normalised states (batch, length, width) of tokens (batch, length).

        With `last`, a number of tokens above 0, those (batch, last, width) of the last ones only:
        the last layer then computes no more than the keys and values of the others. For the other
        arguments see `forward`.
        """
        if documents is not None and cache is not None:
            raise ValueError("documents with a cache: a cache holds one document a row")
        embeddings = [cast(PositionEmbedding, module) for module in self.position_embeddings]
        length, device = input_ids.shape[1], input_ids.device
        if cache is not None:
            positions = cache.positions(positions, length, embeddings[0], device)
        elif positions is None:
            positions = embeddings[0].positions(length, device=device)
        own = positions[..., positions.shape[-1] - length :]
        tokens = self.embed_tokens(input_ids)
        if self.config.scale_embeddings:
            # The factor is rounded as the states are, as Gemma does.
            tokens = tokens * torch.tensor(math.sqrt(tokens.shape[-1]), dtype=tokens.dtype)
        hidden = embeddings[0].embed(tokens, own)
        cos_sin = [embedding.cos_sin(own) for embedding in embeddings]
        masked = None if documents is None else Documents.of(documents, embeddings[0])
        for index, layer in enumerate(self.layers):
            of = index % len(embeddings)  # the layer's own embedding, or the one that all share
            kept = None if cache is None else cache.layers[index]
            wanted = last if index == len(self.layers) - 1 else None
            hidden = layer(
                hidden, positions, embeddings[of], cos_sin[of], masked, kept, last=wanted
            )
        if cache is not None:
            cache.advance(positions)
        return self.norm(hidden)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits (…, vocabulary) of final states (…, width)."""
        return self.lm_head(hidden)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor | None = None,
        *,
        documents: Tensor | None = None,
        labels: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Output:
        """Logits (batch, length, vocabulary) of tokens (batch, length); with `labels`, their loss.

        `positions`, (length,) or (batch, length), are those of the embedding by default.
        `documents`, whole numbers (batch, length): a token attends only to earlier tokens with the
        same number; positions run on. `labels` (batch, length) are the tokens that come next, or
        −100 for none: the loss is the sum over them in nats, in float32 at least, and the logits
        are never held all at once. `cache` holds the tokens before these, and takes these in.
        """
        hidden = self.hidden(input_ids, positions, documents=documents, cache=cache)
        if labels is None:
            return Output(logits=self.head(hidden))
        weight = self.lm_head.weight
        return Output(loss=linear_cross_entropy(hidden.flatten(0, 1), weight, labels.flatten()))
