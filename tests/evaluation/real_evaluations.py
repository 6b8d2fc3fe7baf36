"""Small evaluations as stages in a store, which tests interrupt, and whose batches they count.

`python real_evaluations.py FOLDER NAME CASE` makes one attempt as a process of its own, which saves
its results after every batch and appends a line for each to FOLDER/NAME.batches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from sections import read_section

from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.packing import write_packed
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation import shared_work
from fope_lab.evaluation.base import Evaluation
from fope_lab.evaluation.context import run
from fope_lab.evaluation.shared_work import SharedWork, Workers
from fope_lab.model import Decoder, ModelConfig, save_model
from fope_lab.stages.base import STAGE_TYPES
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.store.writer import RunWriter

SIZES = ModelConfig(num_layers=2, num_heads=2, head_dim=8, vocab_size=272)
LENGTHS = [32, 48]
PERPLEXITY = {"kind": "perplexity", "corpus": "python-docs", "tokens": 2000}
PERPLEXITY |= {"lengths": LENGTHS, "position_buckets": 4, "batch_tokens": 200}
PASSKEY = {"kind": "passkey", "lengths": LENGTHS, "trials": 40, "batch_tokens": 200}
POSGEN = {"kind": "posgen", "subtask": "cot", "length": 48, "count": 33, "batch_tokens": 200}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "perplexity": ("rope", PERPLEXITY),
    "perplexity-drawn": ("random-rope", PERPLEXITY | {"method": "sliding", "stride": 16}),
    "passkey": ("rope", PASSKEY | {"form": "symbolic"}),
    "passkey-drawn": ("random-rope", PASSKEY | {"form": "symbolic"}),
    "posgen": ("rope", POSGEN),
    "posgen-drawn": ("random-rope", POSGEN),
}
"""The position embedding of a model, and what is measured of it: several lists of batches each."""


class DiedError(Exception):
    """Stands for a process that dies."""


def prepare(folder: Path) -> None:
    """Models whose embeddings weigh although they are not trained, and held-out text."""
    for embedding in ("rope", "random-rope"):
        model = Decoder(SIZES, embedding, train_length=32, seed=0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(3)
        (folder / embedding).mkdir()
        save_model(folder / embedding, model, context_length=32, tokenizer="byte")
    (folder / "text").mkdir()
    corpus = parse_corpus("python-docs", Path())
    write_packed(folder / "text", corpus, ByteTokenizer(), "validation")


@dataclass
class RealEvaluation:
    """A case as the stage `name` of a store in a folder that is prepared."""

    folder: Path
    name: str
    case: str

    @property
    def stage(self) -> StageFolder:
        """The stage's folder in the store."""
        return Store(self.folder / "store").folder(CASES[self.case][1]["kind"], self.name)

    @property
    def spec(self) -> Evaluation:
        """What is measured."""
        options = CASES[self.case][1]
        spec = read_section(STAGE_TYPES.all()[options["kind"]], {"from": "model", **options})
        assert isinstance(spec, Evaluation)
        return spec

    def evaluate(self, writer: RunWriter, workers: Workers | None = None) -> dict[str, Any]:
        """What the stage's function does within an attempt."""
        torch.manual_seed(0)
        parents = {"from": self.folder / CASES[self.case][0], "data.0": self.folder / "text"}
        return run(self.spec, writer, parents, workers)

    def attempt(self, workers: Workers | None = None) -> None:
        """An attempt that finishes the stage."""
        with self.stage.begin("test", {}) as attempt:
            attempt.finish(self.evaluate(attempt.writer, workers))

    def attempts(self, until: Callable[[int], bool] = lambda batches: False) -> list[int]:
        """Attempts that save after every batch, and die where `until` says so of the number of
        batches so far; how many batches each computed, the last of which finished the stage."""
        counts: list[int] = []
        exchange, save = SharedWork._exchange, SharedWork._save_if_due

        def counting(work: SharedWork, computed: Any) -> tuple[list[Any], bool]:
            counts[-1] += computed is not None
            return exchange(work, computed)

        def dying(work: SharedWork, stop: bool) -> None:
            save(work, stop)
            if until(sum(counts)):
                raise DiedError

        with (
            patch.object(SharedWork, "_exchange", counting),
            patch.object(SharedWork, "_save_if_due", dying),
            patch.object(shared_work, "SAVE_SECONDS", 0),
            patch.object(shared_work, "SAVING_SHARE", float("inf")),
        ):
            while not self.stage.is_done():
                counts.append(0)
                try:
                    self.attempt()
                except DiedError:
                    continue
        return counts

    def outcome(self) -> tuple[list[tuple[int, dict[str, float]]], dict[str, Any] | None]:
        """The rows and the result of the finished stage."""
        return [(row.step, row.values) for row in self.stage.rows()], self.stage.result()


def main(folder: Path, name: str, case: str) -> None:
    """One attempt, of which every batch leaves a line."""
    exchange = SharedWork._exchange

    def telling(work: SharedWork, computed: Any) -> tuple[list[Any], bool]:
        with (folder / f"{name}.batches").open("a") as file:
            file.write(f"{len(work._lists)}.{len(work._lists[-1][1])}\n")
        return exchange(work, computed)

    with (
        patch.object(SharedWork, "_exchange", telling),
        patch.object(shared_work, "SAVE_SECONDS", 0),
        patch.object(shared_work, "SAVING_SHARE", float("inf")),
    ):
        RealEvaluation(folder, name, case).attempt()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
