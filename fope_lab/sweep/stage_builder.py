"""From a stage's section at a grid point to the stage: checked, with its parents and its key."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.config.cache import Cache
from fope_lab.config.problems import ConfigError, Problem
from fope_lab.data.roles import MODEL, candidate_role, text_role
from fope_lab.evaluation.base import Evaluation
from fope_lab.stages import Pretrain, Select, StageConfig, SwapEmbedding, TrainingConfig
from fope_lab.stages.base import UNTRAINED
from fope_lab.sweep.cost import Cost, cost_of
from fope_lab.sweep.data_stages import PreparationStages, Prepared, inputs_of
from fope_lab.sweep.graph import Stage, make_stage
from fope_lab.sweep.grid_point import StageFields
from fope_lab.sweep.kinds import FILE_KINDS, needs_of
from fope_lab.sweep.local_corpora import LocalCorpora
from fope_lab.sweep.model_spec import ModelSpec, learned_parameters_of, model_spec_of
from fope_lab.sweep.model_stages import select_stages, with_swapped_embedding
from fope_lab.sweep.parents import Parent


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
        self._known: dict[str, Stage] = {}
        """Stages that others may start from, by key."""

    def build(self, section: StageFields, parent: Parent, seed: int) -> BuiltStage:
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

    def select(self, section: StageFields, candidates: Sequence[Stage]) -> dict[int, Stage]:
        """Return the stages that choose among candidates, by their seeds, by the section's rule.

        Raises ValueError if there is nothing to choose from.
        """
        spec = self._checked(section)
        assert isinstance(spec, TrainingConfig), "only a training has the option"
        assert spec.select is not None, "the caller looks for it"
        made = select_stages(spec.select, candidates)
        self._known |= {stage.key: stage for stage in made.values()}
        return made

    def _checked(self, section: StageFields) -> StageConfig:
        """Return a section's configuration, read once for all grid points that set the same in it.

        Raises ConfigError.
        """

        def read() -> StageConfig:
            fields = self._corpora.located(_read_fields(section), self._folder, self._sweep)
            return FILE_KINDS.parse(fields, self._folder, cache=self._cache)

        return self._work.get(section, read)

    def _resolve(
        self, spec: StageConfig, section: StageFields, parent: Parent, seed: int
    ) -> list[Stage]:
        """Return the preparation stages that a stage needs, and the stage last.

        Raises ConfigError if the stage can't start from its parent, if its model can't be made, or
        if it can't read its data.
        """
        needed: tuple[Stage, ...] = ()
        self._known |= {stage.key: stage for stage in parent.ancestors}
        chain = list(self._chain(parent.stage))
        if parent.stage is not None:
            _check_parent(spec, parent.stage, chain[-1])
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
        self._check_text(spec, work.prepared, parent.stage)
        of_parent = parent.stage.seed if parent.stage else None
        if isinstance(spec, TrainingConfig):
            spec = dataclasses.replace(spec, seed=seed, select=None)
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
        if spec.leaves_model:
            self._known[stage.key] = stage
        return [*needed, *work.prepared.stages, stage]

    def _chain(self, stage: Stage | None) -> Iterator[Stage]:
        """The stage and those before it, up to the one that trained its model, if any did: stages
        may only have chosen the model, or exchanged its embedding."""
        while stage is not None:
            yield stage
            if not isinstance(stage.spec, SwapEmbedding | Select):
                break
            stage = self._before(stage)

    def _before(self, stage: Stage) -> Stage | None:
        """The stage whose model a stage goes on with; of a selection, the first candidate."""
        keys = stage.parents
        return self._known.get(keys.get(MODEL) or keys.get(candidate_role(0, stage.seed or 0), ""))

    def _check_text(self, spec: StageConfig, prepared: Prepared, stage: Stage | None) -> None:
        """Raise ConfigError if a stage measures a loss on text by which its model was selected, or
        one that this was trained from: the number would be too good."""
        while stage is not None and spec.part_read() is not None:
            if isinstance(stage.spec, Select):
                for candidate in map(self._known.__getitem__, stage.parents.values()):
                    _check_unread(spec, prepared, candidate)
            stage = self._before(stage)

    def _prepare(self, spec: StageConfig, section: StageFields, parent: ModelSpec | None) -> _Work:
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


def _check_unread(spec: StageConfig, prepared: Prepared, candidate: Stage) -> None:
    """Raise ConfigError if the validations of a candidate read what a stage measures a loss on."""
    trained, section = candidate.spec, candidate.section
    assert isinstance(trained, TrainingConfig), "only trainings are selected"
    if trained.train.validation_part != "all" and spec.part_read() != "all":
        return
    read = {key for role, key in candidate.parents.items() if role in trained.held_out()}
    for i, field in enumerate(spec.corpora()):
        if prepared.parents.get(text_role(i)) in read:
            fault = f"is text by which select chose the model of {section}"
            needs = (
                f"part: second-half here and train.validation_part: first-half in {section}, or"
                " another corpus"
            )
            raise ConfigError(Problem((field,), f"{fault}, so the number would be too good", needs))


def _read_fields(section: StageFields) -> Mapping[str, Any]:
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
