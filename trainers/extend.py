"""Extension starts from a parent's model, to train it on longer text.

The embedding's original length stays the length that the parent was first trained at. A new
embedding of the same mechanism keeps the tensors of the old one (learned parameters, and FoPE's
coefficients) if all have the same shapes; if not, the stage's `resizing` says what becomes of them.
What is drawn is drawn from the stage's seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fope_lab.data.roles import MODEL
from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.model import load_model, read_config
from fope_lab.stages import Extend
from trainers.start import Start


def start(spec: Extend, parents: Mapping[str, Path]) -> Start:
    """The model in the parent's checkpoint, whose role is MODEL.

    It keeps its own embedding if the stage's is None. Raises CheckpointError and EmbeddingError.
    """
    parent = parents[MODEL]
    build_model = partial(
        load_model, parent, embedding=spec.embedding, seed=spec.seed, resizing=spec.resizing
    )
    return Start(load_tokenizer(read_config(parent).tokenizer), build_model)
