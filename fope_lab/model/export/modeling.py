"""The decoder as a model of transformers, for `AutoModelForCausalLM` and `generate`.

An exported model contains this file and every file that it imports (`sources.py`), so that these
files need only torch, transformers and the standard library.
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
from fope_lab.model.cache import KeyValueCache
from fope_lab.model.config import ModelConfig
from fope_lab.model.decoder import Decoder


class FopeLabConfig(PretrainedConfig):
    """The sizes and the embedding of a decoder, as its checkpoint has them.

    `model` are the fields of ModelConfig, and `embedding` is a canonical composition.
    `train_length` is the original training length in tokens, `context_length` the length in tokens
    at which the model was last trained.
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
        """The number of tokens in the vocabulary."""
        return int(self.model["vocab_size"])

    @property
    def hidden_size(self) -> int:
        """The width of the residual stream."""
        return int(self.model["hidden_size"])

    @property
    def num_hidden_layers(self) -> int:
        """The number of decoder layers."""
        return int(self.model["num_layers"])

    @property
    def max_position_embeddings(self) -> int:
        """The length in tokens at which the model was last trained, which is not a limit."""
        return self.context_length


class GenerationCache(KeyValueCache):
    """The decoder's cache, with the methods that `generate` calls."""

    is_compileable = False
    is_croppable = False

    def get_seq_length(self) -> int:
        """The number of tokens in the cache."""
        return self.length


CACHED = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
"""The modes of generation that only append tokens; others reorder a cache or remove tokens."""


FOR_LOSS = {"num_items_in_batch"}
"""The arguments that the Trainer passes with the labels."""


class FopeLabForCausalLM(PreTrainedModel, GenerationMixin):
    """A decoder whose weights transformers loads and saves."""

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
        """The logits (batch, length, vocabulary) of tokens (batch, length), and their loss.

        `attention_mask` (batch, length) is 0 for padding. `labels` (batch, length) are the tokens
        themselves, or −100 for none; the loss is transformers' mean over the next tokens.
        `past_key_values` is a GenerationCache with the earlier tokens, because transformers' own
        caches do not fit; without a cache none is created. `others` are arguments of the loss.
        Raises TypeError for other arguments and other caches.
        """
        given = {name for name, value in others.items() if value is not None and value is not False}
        if unknown := given - FOR_LOSS:
            raise TypeError(f"found {sorted(unknown)}, which this model does not have")
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
        """Positions that do not count padding, and documents that separate padding from text."""
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
        """The arguments of `forward` for the tokens that the cache does not hold yet."""
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
        """Create a cache if it gives the results of a pass over all tokens."""
        if (
            generation_config.use_cache
            and generation_mode in CACHED
            and self.decoder.embedding.keys_cacheable
            and not _pads(model_kwargs.get("attention_mask"))
        ):
            cache = GenerationCache(self.config.num_hidden_layers)
            model_kwargs.setdefault("past_key_values", cache)

    def get_input_embeddings(self) -> torch.nn.Module:
        """The module of the token embeddings."""
        return self.decoder.embed_tokens

    def get_output_embeddings(self) -> torch.nn.Module:
        """The module of the output head."""
        return self.decoder.lm_head

    def resize_token_embeddings(self, *sizes: Any, **options: Any) -> NoReturn:
        """Raise NotImplementedError, because other parts are built from `config.model`, too."""
        raise NotImplementedError(
            f"the vocabulary of this model cannot be resized: it stays at {self.config.vocab_size}"
        )

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Compute the constants of a position embedding, which no file holds."""
        if isinstance(module, PositionEmbedding):
            module.compute_constants()


def _pads(mask: Tensor | None) -> bool:
    return mask is not None and not bool((mask != 0).all())
