"""Prepare data: tokenise a corpus once, for every stage that reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.data.packing import data_identity, write_packed
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizer import load_tokenizer
from fope_lab.sweep.keys import stage_key

if TYPE_CHECKING:
    from fope_lab.store import Attempt
    from fope_lab.sweep.stages import PrepareData


def run(stage: PrepareData, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Write the prepared-data directory as the stage's checkpoint; returns what it holds.

    Raises DataError if the corpus is not what it was when the stage was planned.
    """
    if attempt.resumed_from is not None:  # written whole, and lost before it was called finished
        text = (attempt.resumed_from.path / "data.json").read_text(encoding="utf-8")
        return _result(json.loads(text))
    tokenizer = load_tokenizer(stage.tokenizer)
    identity = data_identity(stage.corpus, tokenizer.identity(), stage.split)
    parts = {name: identity[name] for name in ("corpus", "tokenizer")}
    if stage_key(stage, {}, parts) != attempt.folder.key:
        raise DataError(
            f"{stage.corpus.canonical()} holds something else here than where and when the sweep "
            f"was planned (found {parts}); run the sweep again to plan with it"
        )
    data: dict[str, Any] = {}

    def progress(documents: int, tokens: int) -> None:
        # How many documents a stream holds is known only at its end.
        attempt.progress(documents, documents + 1, tokens=tokens)

    def write(directory: Path) -> None:
        packed = write_packed(directory, stage.corpus, tokenizer, stage.split, progress=progress)
        data.update(packed)

    attempt.save_checkpoint(1, write)
    return _result(data)


def _result(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in ("identity", "vocabulary", "tokens", "documents")}
