"""Stages that prepare what others read: a corpus that is tokenized once, and tokenizers.

A tokenizer's stage leaves tokenizer.json, for the children that read it as "tokenizer".
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fope_lab.config.problems import in_few_words
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.olmo_eval import gpt_neox_file
from fope_lab.data.packing import PackedCorpus, data_identity, write_packed
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import TOKENIZER_FILE, load_for_stage, load_tokenizer
from fope_lab.stages.internal import CopyTokenizer, PrepareData, TrainTokenizer
from fope_lab.stages.key import stage_key
from fope_lab.stages.metric import ResultRecord
from fope_lab.store.folder import StageFolder
from fope_lab.store.writer import RunWriter


def prepare_data(
    spec: PrepareData, writer: RunWriter, parents: Mapping[str, Path]
) -> dict[str, Any]:
    """Write the prepared data as the stage's checkpoint; returns a summary of them.

    One process tokenizes per CPU of the stage. Raises DataError if the corpus has changed since the
    stage was planned.
    """
    if writer.resumed_from is not None:  # the data are whole; only the end of the stage is missing
        packed = PackedCorpus(writer.resumed_from.path, {"split": spec.split})
        packed.verify()
        return _result(packed.info)
    tokenizer = load_for_stage(spec.tokenizer, parents)
    identity = data_identity(spec.corpus, tokenizer.identity(), spec.split)
    # If another stage makes the tokenizer, the key has that stage's key instead of its content.
    request = StageFolder(writer.paths.folder).request()
    planned = (request or {}).get("parents", {})
    parts = {name: identity[name] for name in ("corpus", "tokenizer") if name not in planned}
    if stage_key(spec, planned, parts) != writer.paths.key:
        raise _changed(spec.corpus)
    data: dict[str, Any] = {}
    started = time.monotonic()

    def progress(documents: int, tokens: int) -> None:
        # The number of documents in a stream is known only at its end.
        speed = tokens / (time.monotonic() - started)
        writer.progress(documents, documents + 1, tokens=tokens, tokens_per_second=speed)

    def write(directory: Path) -> None:
        data.update(
            write_packed(
                directory,
                spec.corpus,
                tokenizer,
                spec.split,
                processes=max(1, int(spec.resources.cpus)),
                progress=progress,
            )
        )

    writer.save_checkpoint(1, write)
    return _result(data)


def _result(data: Mapping[str, Any]) -> dict[str, Any]:
    names = ("identity", "fingerprint", "vocabulary", "tokens", "documents")
    return ResultRecord(recorded={name: data[name] for name in names}).as_json()


def _changed(corpus: Corpus) -> DataError:
    return DataError(
        f"the corpus ({in_few_words(corpus.canonical())}) has other content here than when and"
        " where the sweep was planned; run the sweep again to plan with this content"
    )


def train_tokenizer(
    spec: TrainTokenizer, writer: RunWriter, parents: Mapping[str, Path]
) -> dict[str, Any]:
    """Train a tokenizer; returns its identity, digest and vocabulary size.

    A small corpus gives a smaller vocabulary than was asked for. Raises DataError if the corpus has
    changed since the stage was planned.
    """
    recipe = spec.tokenizer
    identity = recipe.identity()
    if stage_key(spec, {}, {"tokenizer": identity}) != writer.paths.key:
        raise _changed(recipe.corpus)

    def write(directory: Path) -> None:
        recipe.write(directory / TOKENIZER_FILE, lambda done: writer.progress(done, done + 1))

    recorded = {"identity": identity, **_saved(writer, write)}
    return ResultRecord(recorded=recorded).as_json()


def copy_tokenizer(
    spec: CopyTokenizer, writer: RunWriter, parents: Mapping[str, Path]
) -> dict[str, Any]:
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
