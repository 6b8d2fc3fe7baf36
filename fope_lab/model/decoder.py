"""The decoder-only language model: Llama's layers with any position embedding.

Parameters are named as in Hugging Face's Llama, less its `model.` prefix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fope_lab.embeddings.module import PositionEmbedding, build_embedding
from fope_lab.embeddings.spec import Spec, resolve_embedding
from fope_lab.model.attention import Attention
from fope_lab.model.config import ModelConfig
from fope_lab.model.projection import Projection

INITIAL_DEVIATION = 0.02


class Output(NamedTuple):
    """What a forward pass returns."""

    logits: Tensor


class FeedForward(nn.Module):
    """SwiGLU (Shazeer, arXiv 2002.05202)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = Projection(config.hidden_size, config.intermediate_size)
        self.up_proj = Projection(config.hidden_size, config.intermediate_size)
        self.down_proj = Projection(config.intermediate_size, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        return self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class DecoderLayer(nn.Module):
    """Pre-norm attention and feed-forward, each added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(
        self,
        hidden: Tensor,
        positions: Tensor,
        embedding: PositionEmbedding,
        tables: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """(batch, length, width) to the same; for the rest see `Attention.forward`."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), positions, embedding, tables)
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
        # Not nn.Embedding(…), which would draw weights from the global generator (see Projection).
        self.embed_tokens = nn.Embedding.from_pretrained(
            torch.empty(config.vocab_size, config.hidden_size), freeze=False
        )
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.lm_head = Projection(config.hidden_size, config.vocab_size)
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
        if self.config.tie_embeddings:
            state = {**state, "lm_head.weight": state["embed_tokens.weight"]}
        self.load_state_dict(state, assign=True)
        self._tie_weights()

    def hidden(self, input_ids: Tensor, positions: Tensor | None = None) -> Tensor:
        """Final normalised states (batch, length, width) of tokens (batch, length).

        `positions`, (length,) or (batch, length), are those of the embedding by default.
        """
        embeddings = [cast(PositionEmbedding, module) for module in self.position_embeddings]
        if positions is None:
            positions = embeddings[0].positions(input_ids.shape[1], device=input_ids.device)
        hidden = embeddings[0].embed(self.embed_tokens(input_ids), positions)
        tables = [embedding.tables(positions) for embedding in embeddings]
        for index, layer in enumerate(self.layers):
            own = index % len(embeddings)  # the layer's own, or the one that all share
            hidden = layer(hidden, positions, embeddings[own], tables[own])
        return self.norm(hidden)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits (…, vocabulary) of final states (…, width)."""
        return self.lm_head(hidden)

    def forward(self, input_ids: Tensor, positions: Tensor | None = None) -> Output:
        """Logits (batch, length, vocabulary) of tokens (batch, length)."""
        return Output(logits=self.head(self.hidden(input_ids, positions)))
