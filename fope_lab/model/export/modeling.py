"""The decoder as a model of transformers, for `AutoModelForCausalLM` and `generate`.

An exported model carries this file and what it imports (`sources.py`), so all of them
need torch, transformers and the standard library alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.generation import GenerationMode
from transformers.modeling_outputs import CausalLMOutputWithPast

from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model.cache import Cache
from fope_lab.model.config import ModelConfig
from fope_lab.model.decoder import Decoder


class FopeLabConfig(PretrainedConfig):
    """Sizes and embedding of a decoder, as its checkpoint has them.

    `model` are the fields of ModelConfig, `embedding` is a canonical composition; `train_length` is
    the original length in tokens, `context_length` the length that it was last trained at.
    """

    model_type = "fope-lab"

    def __init__(
        self,
        model: Mapping[str, Any] | None = None,
        embedding: Mapping[str, Any] | None = None,
        train_length: int = 1,
        context_length: int = 1,
        **others: Any,
    ) -> None:
        self.model = dict(model or {})
        self.embedding = dict(embedding or {})
        self.train_length = train_length
        self.context_length = context_length
        others["tie_word_embeddings"] = self.model.get("tie_embeddings", False)
        super().__init__(**others)

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary."""
        return int(self.model["vocab_size"])

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return int(self.model["hidden_size"])

    @property
    def num_hidden_layers(self) -> int:
        """Layers."""
        return int(self.model["num_layers"])

    @property
    def max_position_embeddings(self) -> int:
        """The length that it was last trained at: no bound."""
        return self.context_length


class GenerationCache(Cache):
    """The decoder's cache, as far as `generate` asks it something."""

    is_compileable = False
    is_croppable = False

    def get_seq_length(self) -> int:
        """Tokens read so far."""
        return self.length


CACHED = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
"""Ways to generate that only ever go on: others reorder a cache, or take tokens back."""


FOR_LOSS = {"num_items_in_batch"}
"""What the Trainer says beside the labels."""


class FopeLabForCausalLM(PreTrainedModel, GenerationMixin):
    """A Decoder whose weights transformers loads and saves."""

    config_class = FopeLabConfig
    base_model_prefix = "decoder"
    supports_gradient_checkpointing = True
    _supports_sdpa = True  # its attention is torch's scaled_dot_product_attention
    _tied_weights_keys = {"decoder.lm_head.weight": "decoder.embed_tokens.weight"}  # noqa: RUF012
    # Angles need exact frequencies, and FoPE's coefficients are float32 in every dtype.
    _keep_in_fp32_modules_strict = ("position_embeddings",)

    def __init__(self, config: FopeLabConfig) -> None:
        super().__init__(config)
        self.decoder = Decoder(
            ModelConfig(**config.model), config.embedding, train_length=config.train_length
        )
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        past_key_values: GenerationCache | None = None,
        return_dict: bool | None = None,
        use_cache: bool | None = None,
        **others: Any,
    ) -> CausalLMOutputWithPast | tuple[Tensor, ...]:
        """Logits (batch, length, vocabulary) of tokens (batch, length).

        `attention_mask` (batch, length) is 0 where a token is padding. `labels` are the tokens
        themselves, −100 for none: the loss is transformers' mean over the next ones.
        `past_key_values` holds the tokens before these; none of transformers' caches will do, and
        without one none is made. `others` are for the loss. Raises TypeError for what is not there.
        """
        asked = {name for name, value in others.items() if value is not None and value is not False}
        if asked - FOR_LOSS:
            raise TypeError(f"found {sorted(asked - FOR_LOSS)}, which this model does not have")
        cache = past_key_values
        if cache is not None and not isinstance(cache, GenerationCache):
            raise TypeError(f"past_key_values: found {type(cache)} (allowed: GenerationCache)")
        positions, documents = self._without_padding(input_ids, attention_mask)
        logits = self.decoder(input_ids, positions, documents=documents, cache=cache).logits
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=logits.shape[-1], **others)
        output = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache)
        return output if return_dict is not False else output.to_tuple()

    def _without_padding(
        self, input_ids: Tensor, mask: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Positions that count no padding, and documents that keep it apart."""
        if not _pads(mask):
            return None, None
        assert mask is not None
        read = mask != 0  # of any dtype
        places = (read.cumsum(-1) - 1).clamp(min=0)
        positions = self._embedding.positions(input_ids.shape[1], device=input_ids.device)
        return positions[places], read.long()

    @property
    def _embedding(self) -> PositionEmbedding:
        embedding = self.decoder.position_embeddings[0]
        assert isinstance(embedding, PositionEmbedding)
        return embedding

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: GenerationCache | None = None,
        **others: Any,
    ) -> dict[str, Any]:
        """The tokens that the cache does not hold yet; all of them without a cache."""
        known = 0 if past_key_values is None else past_key_values.length
        return {
            "input_ids": input_ids[:, known:],
            "attention_mask": attention_mask,
            "past_key_values": past_key_values,
        }

    def _prepare_cache_for_generation(
        self,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, Any],
        generation_mode: GenerationMode,
        *sizes: int,
    ) -> None:
        """A cache where it gives what a pass over all tokens would."""
        if (
            generation_config.use_cache
            and generation_mode in CACHED
            and self._embedding.keys_cacheable
            and not _pads(model_kwargs.get("attention_mask"))
        ):
            cache = GenerationCache(self.config.num_hidden_layers)
            model_kwargs.setdefault("past_key_values", cache)

    def get_input_embeddings(self) -> torch.nn.Module:
        """The token embeddings."""
        return self.decoder.embed_tokens

    def get_output_embeddings(self) -> torch.nn.Module:
        """The head."""
        return self.decoder.lm_head

    def resize_token_embeddings(self, *sizes: Any, **options: Any) -> NoReturn:
        """Refused: the sizes are those of `config.model`, which other parts are built from."""
        raise NotImplementedError(
            f"the vocabulary of this model can't be resized: it stays at {self.config.vocab_size}"
        )

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Constants of a position embedding, which no file holds; the decoder draws its weights."""
        if isinstance(module, PositionEmbedding):
            module.compute_constants()


def _pads(mask: Tensor | None) -> bool:
    return mask is not None and not bool((mask != 0).all())
