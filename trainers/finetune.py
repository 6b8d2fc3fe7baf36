"""Fine-tuning starts from a parent's model, to train it on pairs of prompt and answer or on chats.

The loss is on the assistant's text only: the data mark all other tokens as ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fope_lab.data.problems import DataError
from fope_lab.data.roles import MODEL
from fope_lab.data.tokenizers.tokenizer import load_for_stage, load_tokenizer
from fope_lab.model import load_model, read_config
from fope_lab.stages import Finetune
from trainers.start import Start


def start(spec: Finetune, parents: Mapping[str, Path]) -> Start:
    """The model in the parent's checkpoint, whose role is MODEL.

    The stage's tokenizer may add a chat template and tokens to the model's own. Raises DataError if
    it changes the ids that the model was trained with, CheckpointError and EmbeddingError.
    """
    parent = parents[MODEL]
    config = read_config(parent)
    tokenizer = own = load_tokenizer(config.tokenizer)
    if spec.tokenizer is not None:
        tokenizer = load_for_stage(spec.tokenizer, parents)
        if not own.vocabulary().items() <= tokenizer.vocabulary().items():
            raise DataError(
                f"the tokenizer {spec.tokenizer} has other ids than {config.tokenizer}, which the "
                f"model of {parent} was trained with"
            )
        if tokenizer.tokens > config.model.vocab_size:
            raise DataError(
                f"the tokenizer has {tokenizer.tokens} tokens, and the model of {parent} has "
                f"{config.model.vocab_size}"
            )
    build_model = partial(load_model, parent, embedding=spec.embedding, seed=spec.seed)
    return Start(tokenizer, build_model)
