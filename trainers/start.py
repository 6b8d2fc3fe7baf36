"""What a training starts from; pretrain, extend and finetune differ in this alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.model.decoder import Decoder


@dataclass(frozen=True)
class Start:
    """The tokenizer of a training, and its first model.

    `build_model` is called only where no checkpoint of the training itself exists yet.
    """

    tokenizer: Tokenizer
    build_model: Callable[[], Decoder]
