"""The fields of a config.json of transformers: each is read, has no effect, or is refused by name.

Torch-free, as all of reading a configuration is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from fope_lab.config.problems import did_you_mean
from fope_lab.embeddings.frequencies import HfRope

Json = Mapping[str, Any]

SAID = frozenset({"model_type", "architectures", "dtype", "torch_dtype", "transformers_version"})
"""What says which class wrote the file, and how."""
INERT = SAID | {
    *("_name_or_path", "_commit_hash", "auto_map", "tokenizer_class", "name_or_path"),
    *("use_cache", "initializer_range", "pretraining_tp", "cache_implementation"),
    *("attn_implementation", "_attn_implementation", "_attn_implementation_internal"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id"),
    *("return_dict", "output_attentions", "output_hidden_states", "torchscript", "problem_type"),
    *("id2label", "label2id", "num_labels", "classifier_dropout", "task_specific_params"),
    *("chunk_size_feed_forward", "is_decoder", "max_sequence_length", "is_llama_config"),
    *("unsloth_version", "unsloth_fixed", "model_max_length", "finetuning_task", "pruned_heads"),
    *("_num_labels", "output_past", "transformers.js_config", "tf_legacy_loss", "use_bfloat16"),
    *("prefix", "max_length", "min_length", "do_sample"),
    *("temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty"),
    *("num_beams", "num_beam_groups", "diversity_penalty", "num_return_sequences"),
    *("encoder_no_repeat_ngram_size", "no_repeat_ngram_size", "early_stopping"),
}
"""Fields without an effect on logits, of all families and of files that are on the hub."""
ROPE = (
    *("rope_theta", "rope_scaling", "rope_parameters"),
    *("partial_rotary_factor", "original_max_position_embeddings"),
)


class Fields:
    """A config.json with the defaults of its class, which notes what is read and what is wrong."""

    def __init__(self, given: Json, defaults: Json) -> None:
        self._given, self._defaults = given, defaults
        self._read: set[str] = set()
        self.problems: list[str] = []

    def __getitem__(self, name: str) -> Any:
        """A field, or the default where it is missing or null. Raises KeyError for neither."""
        self._read.add(name)
        value = self._given.get(name)
        return self._defaults[name] if value is None else value

    def get(self, name: str) -> Any:
        """A field that may be null; the default where it is missing."""
        self._read.add(name)
        return self._given.get(name, self._defaults.get(name))

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number from 1; where it is missing or null, the class's default or this one."""
        self._read.add(name)
        value = self._given.get(name)
        if value is None:
            value = self._defaults.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            found = "is missing" if value is None else f"found {value!r}"
            self.problems.append(f"{name}: {found} (allowed: a whole number from 1)")
            return 1
        return value

    def number(self, name: str, *, optional: bool = False) -> float | None:
        """A positive number; with `optional`, null means none."""
        value = self.get(name) if optional else self[name]
        if optional and value is None:
            return None
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or not 0 < value < math.inf:
            self.refuse(name, value, "a number above 0")
            return 1.0
        return float(value)

    def flag(self, name: str) -> bool:
        value = self[name]
        if not isinstance(value, bool):
            self.refuse(name, value, True, False)
        return bool(value)

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse every other value of a field; it may be missing."""
        value = self.get(name)
        if name in self._given and value not in allowed:
            self.refuse(name, value, *allowed)

    def refuse(self, name: str, found: Any, *allowed: Any) -> None:
        words = {None: "null", True: "true", False: "false"}

        def word(value: Any) -> str:
            return words[value] if value is None or isinstance(value, bool) else str(value)

        self.problems.append(
            f"{name}: found {word(found)} (allowed: {', '.join(map(word, allowed))})"
        )

    def rope(self, **other: str) -> HfRope:
        """The rotation in either spelling (`HfRope.of_config`); `other` are names of this family
        for its parameters."""
        fields = {name: self.get(name) for name in ROPE}
        fields["max_position_embeddings"] = self.whole("max_position_embeddings")
        for name in ("rope_scaling", "rope_parameters"):
            if not isinstance(fields[name], Mapping | None):
                self.refuse(name, fields[name], "a mapping")
                fields[name] = None
        fields |= {ours: self.get(theirs) for ours, theirs in other.items()}
        return HfRope.of_config({name: v for name, v in fields.items() if v is not None})

    def unknown(self, inert: frozenset[str]) -> Iterator[str]:
        """Yield a sentence for each field that has a value, is not read, and may have an effect."""
        for name, value in self._given.items():
            if name in self._read or name in inert or value in (None, False, 0, "", [], {}):
                continue
            near = did_you_mean(name, [*self._read, *inert])
            yield f"{name}: found {value!r}, which is not known{near}; without an effect, delete it"
