"""The stages that no sweep file names: they prepare data, tokenizers and models for others.

Each is made once, however many stages need it. The key of a `select` stage follows from the rule
and the keys of all candidates, so that it is known before anything runs.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fope_lab.config.cache import Cache
from fope_lab.config.problems import (
    ConfigError,
    FieldPath,
    Problem,
    first_names,
    nearest_name,
    shown,
)
from fope_lab.config.roles import MODEL, TOKENIZER, candidate_role, text_role, validation_role
from fope_lab.data.corpora.base import Corpus, Split
from fope_lab.data.corpora.tokens import OfTokenizer
from fope_lab.data.olmo_eval import GPT_NEOX, GPT_NEOX_SHA256
from fope_lab.data.problems import DataError
from fope_lab.data.tasks.base import task_problem
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, TrainedTokenizer, may_write_chats
from fope_lab.data.tokenizers.tokenizer import tokenizer_identity
from fope_lab.embeddings import Embedding
from fope_lab.stages.base import Resources, StageConfig
from fope_lab.stages.internal import (
    BestOf,
    CopyTokenizer,
    PrepareData,
    Select,
    SwapEmbedding,
    TrainTokenizer,
)
from fope_lab.stages.labels import corpus_label, label, stage_label, tokenizer_label
from fope_lab.stages.training import Finetune, TrainingConfig
from fope_lab.sweep.cost import Cost, cost_of
from fope_lab.sweep.drafts import Parent
from fope_lab.sweep.graph import Stage, make_stage
from fope_lab.sweep.local_corpora import LocalCorpora
from fope_lab.sweep.model_spec import learned_parameters_of, model_spec_of
from fope_lab.sweep.sweep_file import SweepFile


@dataclass(frozen=True)
class Input:
    """A corpus that a stage reads in a role (config/roles.py); `path`: its place in the section."""

    role: str
    corpus: Corpus
    path: FieldPath
    split: Split


def inputs_of(
    spec: StageConfig, given: Mapping[str, Any], tokenizer: TokenizerRecipe
) -> list[Input]:
    """Return the corpora that a stage reads; `given` are the fields of its section. Raises
    ConfigError for what the stage can't read, or can't do with the tokenizer."""
    if isinstance(spec, TrainingConfig):
        inputs, problems = _training_inputs(spec, given["data"], tokenizer)
    else:
        inputs = [
            Input(text_role(i), corpus, (field,), "validation")
            for i, (field, corpus) in enumerate(spec.corpora().items())
        ]
        problems = list(spec.tokenizer_problems(tokenizer))
    problems += _corpus_problems(spec, inputs, tokenizer)
    if problems:
        raise ConfigError(problems)
    if isinstance(spec, TrainingConfig) and spec.train.validate_every is not None:
        held_out = {text_role(i): validation_role(i) for i in range(len(spec.data.mix))}
        inputs += [replace(each, role=held_out[each.role], split="validation") for each in inputs]
    return inputs


def _training_inputs(
    spec: TrainingConfig, data: Mapping[str, Any], tokenizer: TokenizerRecipe
) -> tuple[list[Input], list[Problem]]:
    inputs = []
    problems = list(_settings_without_effect(spec))
    for i, source in enumerate(spec.data.mix):
        mixed = "mix" in data
        given, path = (data["mix"][i], ("data", "mix", i)) if mixed else (data, ("data",))
        if source.corpus is not None:
            field = ("corpus",) if "corpus" in given else ()
            inputs.append(Input(text_role(i), source.corpus, (*path, *field), "train"))
        elif isinstance(spec, Finetune):
            message = "found a task; a stage of kind finetune reads corpora of pairs or chats"
            problems.append(Problem((*path, "task"), message))
        elif source.task is not None and (unfit := source.task.tokenizer_problem(tokenizer)):
            problems.append(Problem((*path, "task"), unfit))
        elif source.task is not None and (
            # The last token of a row is predicted and not read.
            problem := task_problem(source.task, spec.data.length + 1, tokenizer)
        ):
            reason = "a row of training has one token more than data.length"
            problems.append(Problem(("data", "length"), f"{problem} ({reason})"))
    return inputs, problems


def _settings_without_effect(spec: TrainingConfig) -> Iterator[Problem]:
    if spec.data.pack and not isinstance(spec, Finetune):
        message = f"has no effect: a stage of kind {spec.kind} reads text, which fills its rows"
        yield Problem(("data", "pack"), message)
    if spec.data.documents == "across":
        return
    if all(source.corpus is None for source in spec.data.mix):
        message = "has no effect: no corpus is read, so there are no documents"
        yield Problem(("data", "documents"), message)
    elif isinstance(spec, Finetune):
        message = "has no effect: in a stage of kind finetune no example attends to another"
        yield Problem(("data", "documents"), message)


def _corpus_problems(
    spec: StageConfig, inputs: Iterable[Input], tokenizer: TokenizerRecipe
) -> Iterator[Problem]:
    readable = ("pairs", "chats") if isinstance(spec, Finetune) else ("text", "tokens")
    for each in inputs:
        kind, holds = each.corpus.kind, f"the corpus {corpus_label(each.corpus)} holds"
        if kind not in readable:
            reads = f"a stage of kind {spec.kind} reads {' or '.join(readable)}"
            yield Problem(each.path, f"{holds} {kind}; {reads}")
        elif kind == "chats" and not may_write_chats(tokenizer):
            unfit = f"the tokenizer {tokenizer_label(tokenizer)} has no chat template"
            yield Problem(each.path, f"{holds} chats, and {unfit} to write them in")
        elif isinstance(each.corpus, OfTokenizer) and (
            problem := each.corpus.tokenizer_problem(tokenizer)
        ):
            yield Problem(each.path, problem)


class PreparationStages:
    """Makes the preparation stages of a sweep; `resources` are those of each."""

    def __init__(self, cache: Cache, corpora: LocalCorpora, resources: Resources) -> None:
        self._cache, self._corpora, self._resources = cache, corpora, resources

    def prepare(
        self, spec: StageConfig, tokenizer: TokenizerRecipe, inputs: Iterable[Input]
    ) -> tuple[list[Stage], dict[str, str], dict[str, Any]]:
        """Return the preparation stages of a stage that reads these inputs with this tokenizer,
        parents first; their keys by role; and what replaces fields of the stage in its key.

        A stage whose configuration names no tokenizer finds it with the model that it starts from.
        Raises ConfigError for a tokenizer or a corpus that can't be read.
        """
        names_tokenizer = getattr(spec, "tokenizer", None) is not None
        try:
            made, of_tokenizer, key_replacements = self._tokenizer(tokenizer)
        except DataError as error:
            field = "tokenizer" if names_tokenizer else "from"
            raise ConfigError(Problem((field,), str(error))) from error
        stages, parents = list(made), dict(of_tokenizer)
        if not names_tokenizer:
            parents, key_replacements = {}, {}
        elif tokenizer == "byte":
            key_replacements = {}
        for one in inputs:
            canonical = json.dumps(one.corpus.canonical(), sort_keys=True)
            key = ("prepare", canonical, tokenizer, one.split, self._resources)
            make = functools.partial(self._tokenize, one.corpus, tokenizer, one.split)
            try:
                stage = self._cache.get(key, make)
            except DataError as error:
                raise ConfigError(error.problems, one.path) from error
            stages.append(stage)
            parents[one.role] = stage.key
        return stages, parents, dict(key_replacements)

    def _tokenizer(
        self, recipe: TokenizerRecipe
    ) -> tuple[list[Stage], dict[str, str], dict[str, Any]]:
        """The stage that makes a tokenizer, if one does, its key by role, else its identity."""
        if isinstance(recipe, TrainedTokenizer) or recipe == GPT_NEOX:
            key = ("tokenizer", recipe, self._resources)
            stage = self._cache.get(key, lambda: self._make_tokenizer(recipe))
            return [stage], {TOKENIZER: stage.key}, {}
        identity = self._cache.get(("tokenizer identity", recipe), lambda: _identity(recipe))
        return [], {}, {"tokenizer": identity}

    def _make_tokenizer(self, recipe: TokenizerRecipe) -> Stage:
        spec: StageConfig
        missing: tuple[str, ...] = ()
        if isinstance(recipe, TrainedTokenizer):
            self._check(recipe.corpus)
            spec = TrainTokenizer(tokenizer=recipe, resources=self._resources)
            identity = recipe.identity(self._corpora.identity(recipe.corpus))
            missing = self._corpora.missing(recipe.corpus)
        else:
            spec = CopyTokenizer(tokenizer=recipe, resources=self._resources)
            identity = {"sha256": GPT_NEOX_SHA256}
        return make_stage(
            spec,
            section=spec.kind,
            label=f"{spec.kind}[{tokenizer_label(recipe)}]",
            key_replacements={"tokenizer": identity},
            missing_files=missing,
        )

    def _check(self, corpus: Corpus) -> None:
        if not self._corpora.missing(corpus):
            corpus.check()

    def _tokenize(self, corpus: Corpus, tokenizer: TokenizerRecipe, split: Split) -> Stage:
        spec = PrepareData(
            corpus=corpus, tokenizer=tokenizer, split=split, resources=self._resources
        )
        self._check(corpus)
        _, parents, identity = self._tokenizer(tokenizer)
        return make_stage(
            spec,
            section=spec.kind,
            label=f"{spec.kind}[{corpus_label(corpus)},{tokenizer_label(tokenizer)},{split}]",
            parents=parents,
            key_replacements={"corpus": self._corpora.identity(corpus), **identity},
            missing_files=self._corpora.missing(corpus),
        )


def _identity(tokenizer: str) -> dict[str, Any]:
    try:
        return tokenizer_identity(tokenizer)
    except OSError as error:
        raise DataError(f"{tokenizer} can't be read: {error.strerror}") from error


MEASURE = frozenset(
    {"validate_every", "validation_tokens", "validation_length", "validation_part", "select"}
)
"""The settings of `train` that change what a candidate is measured by."""


def rule_problems(file: SweepFile) -> Iterator[Problem]:
    """Yield what is wrong with the axes that sections select over, each with its place."""
    included = (axis for point in file.include for axis in point)
    axes = dict.fromkeys([*file.grid, *file.zip, *included])
    for name, selected in file.selected_axes.items():
        if selected in axes and _is_setting(selected):
            continue
        at, over = ("stages", name, "select", "over"), selected.partition(".")[2]
        if selected in axes and selected.rpartition(".")[2] in MEASURE:
            fault = f"found {shown(over)}, which changes what the candidates are compared by"
            yield Problem(at, fault, "a setting of the training itself")
            continue
        own = (axis for axis in axes if axis.partition(".")[0] == name and _is_setting(axis))
        allowed = [axis.partition(".")[2] for axis in own]
        yield Problem(
            at,
            f"found {shown(over)}, which is no axis of {name} that sets a field of train",
            None if allowed else f"an axis in grid, such as {name}.train.learning_rate: […]",
            nearest=nearest_name(over, allowed),
            allowed=first_names(allowed) or None,
        )


def _is_setting(axis: str) -> bool:
    """Whether an axis sets a field of `train`, which leaves the model's shape as it is."""
    _, part, *fields = axis.split(".")
    return part == "train" and MEASURE.isdisjoint(fields)


def select_stages(rule: BestOf, candidates: Sequence[Stage]) -> dict[int, Stage]:
    """Return the stages that choose among the candidates of all values and seeds, by seed. Raises
    ValueError if there is one value only."""
    first = candidates[0]
    axis = f"{first.section}.{rule.over}"
    by_value: dict[str, dict[int, Stage]] = {}
    for stage in candidates:
        assert stage.seed is not None, "a training has a seed"
        by_value.setdefault(label(stage.axes[axis]), {})[stage.seed] = stage
    rows = list(by_value.values())
    if len(rows) < 2:
        raise ValueError(f"found one candidate, {next(iter(by_value))}, and needs several")
    seeds = tuple(sorted(rows[0]))
    axes = {path: value for path, value in first.axes.items() if path != axis}
    spec = Select(
        over=rule.over,
        by=rule.by,
        values=tuple(row[seeds[0]].axes[axis] for row in rows),
        seeds=seeds,
        seed=seeds[0],
    )
    parents = {
        candidate_role(i, seed): row[seed].key for i, row in enumerate(rows) for seed in seeds
    }
    return {
        seed: make_stage(
            replace(spec, seed=seed),
            section=spec.kind,
            label=f"{spec.kind}[{stage_label(first.section, axes, seed)}]",
            axes=axes,
            seed=seed,
            parents=parents,
            model_spec=first.model_spec,
            cost=Cost(first.cost.parameters, 0, 0.0),
        )
        for seed in seeds
    }


def with_swapped_embedding(
    parent: Parent, embedding: Embedding, given: Any, cache: Cache
) -> Parent:
    """Return what an evaluation with an embedding of its own, `given` in the file, starts from.
    Raises ConfigError, at ("embedding",), if the model can't have it."""
    before = parent.model_spec
    assert before is not None, "only a model has an embedding"
    if before.embedding == embedding:
        return parent
    stage = parent.stage
    spec = SwapEmbedding(
        from_=stage.section if stage else str(parent.external and parent.external.path),
        embedding=embedding,
        seed=(stage.seed if stage else None) or 0,
    )
    model_spec = model_spec_of(spec, {"embedding": given}, before, cache)
    origin = stage.label if stage else Path(spec.from_).name
    swapped = make_stage(
        spec,
        section=spec.kind,
        label=f"{spec.kind}[{model_spec.embedding_label},{origin}]",
        axes=stage.axes if stage else None,
        seed=stage.seed if stage else None,
        parents={MODEL: stage.key} if stage else {},
        external=parent.external,
        model_spec=model_spec,
        cost=cost_of(
            spec,
            model_spec.model,
            model_spec.embedding,
            learned_parameters_of(model_spec, cache),
        ),
    )
    return Parent((swapped.key, parent.memo_key), swapped, ancestors=(*parent.ancestors, swapped))
