"""Prepare data: tokenise a corpus once, for every stage that reads it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.data.packing import PackedCorpus, data_identity, write_packed
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import load_for_stage
from fope_lab.sweep.keys import stage_key

if TYPE_CHECKING:
    from fope_lab.stages import PrepareData
    from fope_lab.store import Attempt


def run(stage: PrepareData, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Write the prepared-data directory as the stage's checkpoint; returns what it holds.

    As many processes tokenise as the stage has processors. Raises DataError if the corpus is not
    what it was when the stage was planned.
    """
    if attempt.resumed_from is not None:  # written whole, and lost before it was called finished
        packed = PackedCorpus(attempt.resumed_from.path, {"split": stage.split})
        packed.verify()
        return _result(packed.info)
    tokenizer = load_for_stage(stage.tokenizer, parents)
    identity = data_identity(stage.corpus, tokenizer.identity(), stage.split)
    # A tokenizer that a stage made is in the key by that stage's own.
    planned = (attempt.folder.request() or {}).get("parents", {})
    parts = {name: identity[name] for name in ("corpus", "tokenizer") if name not in planned}
    if stage_key(stage, planned, parts) != attempt.folder.key:
        raise DataError(
            f"{stage.corpus.canonical()} holds something else here than where and when the sweep "
            f"was planned (found {parts}); run the sweep again to plan with it"
        )
    data: dict[str, Any] = {}
    started = time.monotonic()

    def progress(documents: int, tokens: int) -> None:
        # How many documents a stream holds is known only at its end.
        speed = tokens / (time.monotonic() - started)
        attempt.progress(documents, documents + 1, tokens=tokens, tokens_per_second=speed)

    def write(directory: Path) -> None:
        data.update(
            write_packed(
                directory,
                stage.corpus,
                tokenizer,
                stage.split,
                processes=max(1, int(stage.resources.cpus)),
                progress=progress,
            )
        )

    attempt.save_checkpoint(1, write)
    return _result(data)


def _result(data: Mapping[str, Any]) -> dict[str, Any]:
    names = ("identity", "fingerprint", "vocabulary", "tokens", "documents")
    return {name: data[name] for name in names}
