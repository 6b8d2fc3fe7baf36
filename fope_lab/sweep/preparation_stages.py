"""The preparation stages of a sweep, which tokenize corpora and train or copy tokenizers.

No sweep file names them. Each is made once, however many stages need it, and is their parent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fope_lab.config.cache import Cache
from fope_lab.config.problems import ConfigError, Problem
from fope_lab.data.corpora.base import Corpus, Split
from fope_lab.data.olmo_eval import GPT_NEOX, GPT_NEOX_SHA256
from fope_lab.data.problems import DataError
from fope_lab.data.roles import TOKENIZER
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.data.tokenizers.tokenizer import tokenizer_identity
from fope_lab.data.tokenizers.trained import TrainedTokenizer
from fope_lab.stages import (
    CopyTokenizer,
    PrepareData,
    Resources,
    StageConfig,
    TrainTokenizer,
)
from fope_lab.stages.labels import corpus_label, tokenizer_label
from fope_lab.sweep.graph import Stage, make_stage
from fope_lab.sweep.inputs import Input
from fope_lab.sweep.local_corpora import LocalCorpora


@dataclass(frozen=True)
class Prepared:
    """What preparation stages make for one stage.

    `stages` are the preparation stages, parents first, and `parents` their keys by role.
    `key_replacements` replace fields of the stage in its key.
    """

    stages: tuple[Stage, ...]
    parents: dict[str, str]
    key_replacements: dict[str, Any]


class PreparationStages:
    """Makes the preparation stages of a sweep; `resources` are those of each."""

    def __init__(self, cache: Cache, corpora: LocalCorpora, resources: Resources) -> None:
        self._cache, self._corpora, self._resources = cache, corpora, resources

    def prepare(
        self, spec: StageConfig, tokenizer: TokenizerRecipe, inputs: Iterable[Input]
    ) -> Prepared:
        """Return what a stage needs that reads these inputs with this tokenizer.

        A stage whose configuration names no tokenizer finds it with the model that it starts from.
        Raises ConfigError for a tokenizer or a corpus that can't be read.
        """
        names_tokenizer = getattr(spec, "tokenizer", None) is not None
        stages: list[Stage] = []
        parents: dict[str, str] = {}
        key_replacements: dict[str, Any] = {}
        try:
            made = self._tokenizer(tokenizer)
        except DataError as error:
            field = "tokenizer" if names_tokenizer else "from"
            raise ConfigError(Problem((field,), str(error))) from error
        if isinstance(made, Stage):
            stages.append(made)
            if names_tokenizer:
                parents[TOKENIZER] = made.key
        elif names_tokenizer and tokenizer != "byte":
            key_replacements["tokenizer"] = made
        for one in inputs:
            try:
                stage = self._corpus(one.corpus, tokenizer, one.split)
            except DataError as error:
                raise ConfigError(error.problems, one.path) from error
            stages.append(stage)
            parents[one.role] = stage.key
        return Prepared(tuple(stages), parents, key_replacements)

    def _tokenizer(self, recipe: TokenizerRecipe) -> Stage | dict[str, Any]:
        """Return the stage that makes a tokenizer, or the identity of one that exists."""
        if isinstance(recipe, TrainedTokenizer) or recipe == GPT_NEOX:
            return self._once(("tokenizer", recipe), lambda: self._make_tokenizer(recipe))
        return self._cache.get(("tokenizer identity", recipe), lambda: _identity(recipe))

    def _corpus(self, corpus: Corpus, tokenizer: TokenizerRecipe, split: Split) -> Stage:
        """Return the stage that tokenizes a split of a corpus."""
        canonical = json.dumps(corpus.canonical(), sort_keys=True)
        return self._once(
            ("prepare", canonical, tokenizer, split),
            lambda: self._tokenize(corpus, tokenizer, split),
        )

    def _once(self, key: tuple[Any, ...], make: Callable[[], Stage]) -> Stage:
        return self._cache.get((*key, self._resources), make)

    def _make_tokenizer(self, recipe: TokenizerRecipe) -> Stage:
        spec: StageConfig
        missing: tuple[str, ...] = ()
        if isinstance(recipe, TrainedTokenizer):
            spec = TrainTokenizer(tokenizer=recipe, resources=self._resources)
            identity = recipe.identity(self._corpora.identity(recipe.corpus))
            missing = self._corpora.missing(recipe.corpus)
        else:
            spec = CopyTokenizer(tokenizer=recipe, resources=self._resources)
            identity = {"sha256": GPT_NEOX_SHA256}
        label = f"{spec.kind}[{tokenizer_label(recipe)}]"
        replaced = {"tokenizer": identity}
        return make_stage(
            spec,
            section=spec.kind,
            label=label,
            key_replacements=replaced,
            missing_files=missing,
        )

    def _tokenize(self, corpus: Corpus, tokenizer: TokenizerRecipe, split: Split) -> Stage:
        spec = PrepareData(
            corpus=corpus, tokenizer=tokenizer, split=split, resources=self._resources
        )
        parents, key_replacements = {}, {"corpus": self._corpora.identity(corpus)}
        made = self._tokenizer(tokenizer)
        if isinstance(made, Stage):
            parents[TOKENIZER] = made.key
        else:
            key_replacements["tokenizer"] = made
        return make_stage(
            spec,
            section=spec.kind,
            label=f"{spec.kind}[{corpus_label(corpus)},{tokenizer_label(tokenizer)},{split}]",
            parents=parents,
            key_replacements=key_replacements,
            missing_files=self._corpora.missing(corpus),
        )


def _identity(tokenizer: str) -> dict[str, Any]:
    try:
        return tokenizer_identity(tokenizer)
    except OSError as error:
        raise DataError(f"{tokenizer} can't be read: {error.strerror}") from error
