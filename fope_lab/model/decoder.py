"""The decoder-only language model: the layers of many families with any position embedding.

Parameters have the names of Hugging Face's Llama without the prefix `model.`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fope_lab.embeddings.base import Shape, check_definition
from fope_lab.embeddings.module import PositionEmbedding, QueryScaling, build_embedding
from fope_lab.embeddings.spec import Spec, parse_embedding
from fope_lab.model.attention import Attention
from fope_lab.model.cache import KeyValueCache
from fope_lab.model.config import ModelConfig
from fope_lab.model.layers import FEED_FORWARDS, NORM_PLACES, NORMS, UninitializedLinear
from fope_lab.model.loss import linear_cross_entropy
from fope_lab.model.scores import consecutive
from fope_lab.model.seen import Documents

INITIAL_DEVIATION = 0.02


class Output(NamedTuple):
    """The result of a forward pass: logits without labels, the loss with labels."""

    logits: Tensor | None = None
    loss: Tensor | None = None


def position_embeddings(model: nn.Module) -> list[PositionEmbedding]:
    """The position embeddings of a model, whatever it is wrapped in."""
    return [module for module in model.modules() if isinstance(module, PositionEmbedding)]


class DecoderLayer(nn.Module):
    """A layer of attention and feed-forward, each added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gradient_checkpointing = False
        self.parallel = config.parallel
        here = {name: NORMS[config.norm](config) for name in NORM_PLACES[config.norm_place]}
        self.input_layernorm = here.get("input_layernorm", nn.Identity())
        self.self_attn = Attention(config)
        self.attention_norm = here.get("attention_norm", nn.Identity())
        self.post_attention_layernorm = here.get("post_attention_layernorm", nn.Identity())
        self.mlp = FEED_FORWARDS[config.feed_forward](config)
        self.feed_forward_norm = here.get("feed_forward_norm", nn.Identity())
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden: Tensor, *of_attention: Any, last: int | None = None) -> Tensor:
        """Apply the layer to (batch, length, width); with `last`, return the last tokens only.

        The other arguments are those of `Attention.forward`.
        """
        if not (self.gradient_checkpointing and self.training and torch.is_grad_enabled()):
            return self._forward(hidden, *of_attention, last=last)
        # Inside the layer, so that a wrapper such as FSDP2 acts once around both computations.
        computed: Tensor = checkpoint(
            self._forward,
            hidden,
            *of_attention,
            last=last,
            use_reentrant=False,
            preserve_rng_state=self.dropout.p > 0,  # or else nothing is random
        )
        return computed

    def _forward(self, hidden: Tensor, *of_attention: Any, last: int | None = None) -> Tensor:
        mixed = self.self_attn(self.input_layernorm(hidden), *of_attention, last=last)
        before = hidden if last is None else hidden[:, -last:]
        hidden = before + self.dropout(self.attention_norm(mixed))
        inner = self.mlp(self.post_attention_layernorm(before if self.parallel else hidden))
        return hidden + self.dropout(self.feed_forward_norm(inner))


class Decoder(nn.Module):
    """A causal language model of the sizes `config` with the position embedding `embedding`.

    `train_length` is the original training length in tokens, on which embeddings may depend. The
    initial weights depend on `config` and `seed` only, so that models with different embeddings
    start with equal weights. Raises EmbeddingError if the embedding is wrong or does not fit.
    """

    def __init__(
        self, config: ModelConfig, embedding: Spec, *, train_length: int, seed: int = 0
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = parse_embedding(embedding)
        self.train_length = train_length
        check_definition(self.embedding, Shape(**config.head_sizes, train_length=train_length))
        self.plans = self.embedding.layers(config.num_layers)
        """What each layer attends with."""
        # nn.Embedding(…) would draw weights from the global generator (see UninitializedLinear).
        self.embed_tokens = nn.Embedding.from_pretrained(
            torch.empty(config.vocab_size, config.hidden_size), freeze=False
        )
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.norm = NORMS[config.norm](config)
        self.lm_head = UninitializedLinear(config.hidden_size, config.vocab_size, bias=False)
        self._tie_weights()
        self._draw_weights(seed)
        self.position_embeddings = nn.ModuleList(self._position_embeddings(seed))
        self.query_scales = nn.ModuleDict(self._query_scales())
        """Those of the layers that have one, by the layer's index."""

    def _position_embeddings(self, seed: int) -> list[PositionEmbedding]:
        """The modules of the layers' embeddings, each once, by the number of their tensors."""
        sizes = {**self.config.head_sizes, "train_length": self.train_length, "seed": seed}
        modules: dict[int, PositionEmbedding] = {}
        for index, plan in enumerate(self.plans):
            if plan.tensors not in modules:
                layer = index if plan.embedding.per_layer else 0
                modules[plan.tensors] = build_embedding(plan.embedding, **sizes, layer=layer)
        return list(modules.values())

    def _query_scales(self) -> dict[str, QueryScaling]:
        shape = Shape(**self.config.head_sizes, train_length=self.train_length)
        scales = {str(i): plan.embedding.query_scale for i, plan in enumerate(self.plans)}
        return {i: QueryScaling(each, shape) for i, each in scales.items() if each is not None}

    @torch.no_grad()
    def _draw_weights(self, seed: int) -> None:
        """Draw from Normal(0, 0.02), divided by √(2·layers) for projections to the residual."""
        device = self.embed_tokens.weight.device
        if device.type == "meta":  # a checkpoint has the weights, or they are only counted
            return
        generator = torch.Generator(device).manual_seed(seed)
        residual = INITIAL_DEVIATION / math.sqrt(2 * self.config.num_layers)
        for name, weight in self.named_parameters():
            if weight.dim() == 1:  # gains start at 1, biases at 0
                continue
            added = name.endswith(("o_proj.weight", "down_proj.weight"))
            weight.normal_(0.0, residual if added else INITIAL_DEVIATION, generator=generator)

    def _tie_weights(self) -> None:
        if self.config.tie_embeddings:
            self.lm_head.weight = self.embed_tokens.weight

    def untied_state(self) -> dict[str, Tensor]:
        """The state without the weight of a tied head, which is the input embedding's."""
        state = self.state_dict()
        if self.config.tie_embeddings:
            del state["lm_head.weight"]
        return state

    def load_untied_state(self, state: Mapping[str, Tensor]) -> None:
        """Use the tensors of an `untied_state` without copying. Raises RuntimeError for others."""
        if self.config.tie_embeddings and "embed_tokens.weight" in state:
            state = {**state, "lm_head.weight": state["embed_tokens.weight"]}
        self.load_state_dict(state, assign=True)
        self._tie_weights()

    @property
    def gradient_checkpointing(self) -> bool:
        """Whether training keeps only the inputs of layers, which takes less memory.

        The backward pass computes each layer again, so that a step takes a third more time.
        """
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
        cache: KeyValueCache | None = None,
        last: int | None = None,
    ) -> Tensor:
        """The final normalised states (batch, length, width) of tokens (batch, length).

        With `last`, a number of tokens above 0, only the states (batch, last, width) of the last
        tokens are returned; of the others the last layer computes only keys and values. The other
        arguments are those of `forward`. Raises ValueError for documents together with a cache.
        """
        if documents is not None and cache is not None:
            raise ValueError("documents with a cache: a cache holds one document per row")
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
        hidden = self.dropout(embeddings[0].embed(tokens, own))
        # Reading the positions waits for the device: once for all embeddings.
        by_distance = next((each for each in embeddings if each.biases_by_distance), None)
        steps = by_distance is not None and consecutive(positions, by_distance)
        places = [embedding.places(positions, length, steps=steps) for embedding in embeddings]
        masked: list[Documents | None] = [None] * len(embeddings)
        if documents is not None:
            of = {embedding.biases: embedding for embedding in embeddings}
            kinds = {biases: Documents.of(documents, each) for biases, each in of.items()}
            masked = [kinds[embedding.biases] for embedding in embeddings]
        scales = dict(self.query_scales.items())
        for index, (layer, plan) in enumerate(zip(self.layers, self.plans, strict=True)):
            number = plan.tensors
            hidden = layer(
                hidden,
                embeddings[number],
                places[number],
                masked[number],
                plan.window,
                scales.get(str(index)),
                None if cache is None else cache.layers[index],
                last=last if index == len(self.layers) - 1 else None,
            )
        if cache is not None:
            cache.advance(positions)
        return self.norm(hidden)

    def head(self, hidden: Tensor) -> Tensor:
        """The logits (…, vocabulary) of final states (…, width)."""
        logits, cap = self.lm_head(hidden), self.config.logit_cap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor | None = None,
        *,
        documents: Tensor | None = None,
        labels: Tensor | None = None,
        cache: KeyValueCache | None = None,
        last: int | None = None,
    ) -> Output:
        """The logits (batch, length, vocabulary) of tokens (batch, length), or their loss.

        `positions`, (length,) or (batch, length), are by default those of the embedding. With
        `documents`, integers (batch, length), a token attends only to tokens of its own number;
        positions continue across documents. `labels` (batch, length) are the next tokens, or −100
        for none: the loss is the sum of their cross-entropies in nats, in float32 or a wider type,
        and is computed without holding all logits at once. `cache` holds the earlier tokens, and
        these tokens are added to it. With `last`, the result is that of so many of the last tokens,
        and the last layer computes no more than it needs for them.
        """
        hidden = self.hidden(input_ids, positions, documents=documents, cache=cache, last=last)
        if labels is None:
            return Output(logits=self.head(hidden))
        if last is not None:
            labels = labels[:, -last:]
        weight, cap = self.lm_head.weight, self.config.logit_cap
        loss = linear_cross_entropy(hidden.flatten(0, 1), weight, labels.flatten(), cap)
        return Output(loss=loss)
