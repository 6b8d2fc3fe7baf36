"""From a stage's section at a grid point to the stage: checked, with its parents and its key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.config.cache import Cache
from fope_lab.config.problems import ConfigError, Problem
from fope_lab.data.roles import MODEL
from fope_lab.evaluation.base import Evaluation
from fope_lab.stages import Pretrain, StageConfig, SwapEmbedding, TrainingConfig
from fope_lab.stages.base import UNTRAINED
from fope_lab.sweep.apply_axes import StageSection
from fope_lab.sweep.cost import Cost, cost_of
from fope_lab.sweep.graph import Stage, make_stage
from fope_lab.sweep.hints import needs_of
from fope_lab.sweep.inputs import inputs_of
from fope_lab.sweep.kinds import FILE_KINDS
from fope_lab.sweep.local_corpora import LocalCorpora
from fope_lab.sweep.model_spec import ModelSpec, learned_parameters_of, model_spec_of
from fope_lab.sweep.parents import Parent
from fope_lab.sweep.preparation_stages import PreparationStages, Prepared
from fope_lab.sweep.swap_embedding import with_swapped_embedding


@dataclass(frozen=True)
class BuiltStage:
    """The stage of a section at a grid point.

    `stage` is None if something is wrong; `problems` say what, each with its place in the file.
    `stages` are all stages that come into the sweep with this one, parents first: its ancestors in
    other files, its preparation stages and itself.
    """

    stage: Stage | None
    stages: tuple[Stage, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class _Work:
    """What a section's stages have in common, whatever their seeds and their parents' keys.

    `spec` is without a seed of the sweep.
    """

    spec: StageConfig
    model_spec: ModelSpec
    prepared: Prepared
    key_replacements: Mapping[str, Any]
    cost: Cost


class StageBuilder:
    """Builds the stages of one sweep file.

    `folder` is where relative paths start, and `sweep` the name of the sweep. With `axes_known`
    false, because a part of the grid is wrong, no field is called missing: an axis may be meant to
    set it.
    """

    def __init__(
        self,
        folder: Path,
        sweep: str,
        preparation: PreparationStages,
        corpora: LocalCorpora,
        cache: Cache,
        axes_known: bool,
    ) -> None:
        self._folder, self._sweep = folder, sweep
        self._preparation, self._corpora = preparation, corpora
        self._cache, self._axes_known = cache, axes_known
        self._work = Cache()  # of its own: it knows the sections of this file alone
        self._before_exchange: dict[str, Stage] = {}

    def build(self, section: StageSection, parent: Parent, seed: int) -> BuiltStage:
        """Return the stage of a section that starts from `parent`, under a seed of the sweep."""
        problems = list(section.problems)
        if parent.problem is not None:
            problems.append(Problem(section.locate(("from",)), parent.problem))
        try:
            spec = self._checked(section)
            if not problems and (parent.exists or spec.stands_alone()):
                *needed, stage = self._resolve(spec, section, parent, seed)
                return BuiltStage(stage, (*parent.ancestors, *needed, stage), ())
        except ConfigError as error:
            problems += [
                dataclasses.replace(
                    problem, path=section.locate(problem.path), needs=needs_of(problem, section)
                )
                for problem in error.problems
                if self._axes_known or not problem.is_missing
            ]
        return BuiltStage(None, (), tuple(problems))

    def _checked(self, section: StageSection) -> StageConfig:
        """Return a section's configuration, read once for all grid points that set the same in it.

        Raises ConfigError.
        """

        def read() -> StageConfig:
            fields = self._corpora.located(_read_fields(section), self._folder, self._sweep)
            return FILE_KINDS.parse(fields, self._folder, cache=self._cache)

        return self._work.get(section, read)

    def _resolve(
        self, spec: StageConfig, section: StageSection, parent: Parent, seed: int
    ) -> list[Stage]:
        """Return the preparation stages that a stage needs, and the stage last.

        Raises ConfigError if the stage can't start from its parent, if its model can't be made, or
        if it can't read its data.
        """
        needed: tuple[Stage, ...] = ()
        if parent.stage is not None:
            _check_parent(spec, parent.stage, self._trained(parent.stage, parent.ancestors))
        if isinstance(spec, Evaluation) and spec.embedding is not None and parent.exists:
            given = section.fields["embedding"]
            parent = with_swapped_embedding(parent, spec.embedding, given, self._cache)
            needed = parent.ancestors
            spec = dataclasses.replace(spec, embedding=None)
        axes = {**(parent.stage.axes if parent.stage else {}), **section.axes}
        if not parent.exists and not isinstance(spec, Pretrain):  # an analysis of no model
            replaced = spec.key_replacements()
            return [make_stage(spec, section=section.name, axes=axes, key_replacements=replaced)]
        model = parent.model_spec
        work = self._work.get((section, model), lambda: self._prepare(spec, section, model))
        spec = work.spec
        of_parent = parent.stage.seed if parent.stage else None
        if isinstance(spec, TrainingConfig):
            spec = dataclasses.replace(spec, seed=seed)
        elif isinstance(spec, SwapEmbedding):
            spec = dataclasses.replace(spec, seed=of_parent or 0)
        stage = make_stage(
            spec,
            section=section.name,
            axes=axes,
            seed=spec.seed if isinstance(spec, TrainingConfig) else of_parent,
            parents=({MODEL: parent.stage.key} if parent.stage else {}) | work.prepared.parents,
            external=parent.external,
            key_replacements=work.key_replacements,
            model_spec=work.model_spec,
            cost=work.cost,
        )
        if isinstance(spec, SwapEmbedding) and parent.stage is not None:
            self._before_exchange[stage.key] = parent.stage
        return [*needed, *work.prepared.stages, stage]

    def _trained(self, stage: Stage, of_other_files: Sequence[Stage]) -> Stage:
        """The stage that trained the model of a stage, which may only have exchanged its embedding.

        If no stage did, it is the stage itself.
        """
        while isinstance(stage.spec, SwapEmbedding):
            origin = stage.parents.get(MODEL)
            others = (other for other in of_other_files if other.key == origin)
            before = self._before_exchange.get(stage.key) or next(others, None)
            if before is None:
                break
            stage = before
        return stage

    def _prepare(self, spec: StageConfig, section: StageSection, parent: ModelSpec | None) -> _Work:
        """Return what a section's stages that start from models like `parent` have in common.

        Raises ConfigError.
        """
        replaced = spec.key_replacements()
        model_spec = model_spec_of(spec, section.fields, parent, self._cache)
        inputs = inputs_of(spec, section.fields, model_spec.tokenizer)
        prepared = self._preparation.prepare(spec, model_spec.tokenizer, inputs)
        if isinstance(spec, Pretrain):
            spec = dataclasses.replace(spec, model=model_spec.model)
        cost = cost_of(spec, model_spec.model, learned_parameters_of(model_spec, self._cache))
        return _Work(spec, model_spec, prepared, {**prepared.key_replacements, **replaced}, cost)


def _read_fields(section: StageSection) -> Mapping[str, Any]:
    """The fields of a section that count at a grid point.

    Where an axis sets `train` to UNTRAINED, data and resources that stand in the section itself are
    those of the points that train.
    """
    if section.fields.get("train") != UNTRAINED or ("train",) not in section.origins:
        return section.fields
    of_training = {name for name in ("data", "resources") if (name,) not in section.origins}
    return {name: value for name, value in section.fields.items() if name not in of_training}


def _check_parent(spec: StageConfig, parent: Stage, trained: Stage) -> None:
    """Raise ConfigError if a stage can't start from the model of another stage, which `trained` has
    trained."""
    if not parent.spec.leaves_model:
        message = f"{parent.section} is a stage of kind {parent.kind}, which produces no model"
        raise ConfigError(Problem(("from",), message))
    if problems := list(spec.parent_problems(trained.spec)):
        raise ConfigError(problems)
