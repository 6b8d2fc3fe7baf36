"""From the drafts of a sweep to its stages: checked, with their parents and their keys.

Equal stages become one. The drafts are counted before the first is built.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.config import pydantic_errors
from fope_lab.config.cache import Cache
from fope_lab.config.problems import ConfigError, FieldPath, Problem, format_path
from fope_lab.config.roles import MODEL, candidate_role, text_role
from fope_lab.stages.base import STAGE_TYPES, UNTRAINED, Resources, StageConfig, parse_stage
from fope_lab.stages.internal import Select, SwapEmbedding
from fope_lab.stages.labels import unique_labels
from fope_lab.stages.training import Pretrain, TrainingConfig
from fope_lab.sweep.added_stages import (
    PreparationStages,
    inputs_of,
    select_stages,
    with_swapped_embedding,
)
from fope_lab.sweep.cost import Cost, cost_of
from fope_lab.sweep.drafts import Candidates, Draft, Drafts, Parent, StageFields, apply_axes
from fope_lab.sweep.expand import ProblemCollector
from fope_lab.sweep.graph import Stage, make_stage
from fope_lab.sweep.local_corpora import LocalCorpora
from fope_lab.sweep.model_spec import ModelSpec, learned_parameters_of, model_spec_of
from fope_lab.sweep.sweep_file import SweepFile

NUMBERS = (pydantic_errors.NEEDS["int_type"], pydantic_errors.NEEDS["float_type"])
"""What is wanted where a single number belongs."""
MINUTES = ("timeout", "checkpoint_minutes")
"""Fields in which "30m" would not mean 30 million."""
_EXPONENTS = {"k": "e3", "m": "e6", "b": "e9", "g": "e9"}
_BASED = re.compile("0x[0-9a-f]{1,15}|0o[0-7]{1,20}|0b[01]{1,60}", re.IGNORECASE)
_GROUPED, _SIXTIES = re.compile(r"\d{1,3}(,\d{3}){1,5}"), re.compile(r"\d{1,5}(:[0-5]?\d){1,5}")
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kmbgKMBG])")


@dataclass(frozen=True)
class _SharedWork:
    """What stages with the same fields and like models share, whatever their seeds and parents."""

    spec: StageConfig
    model_spec: ModelSpec
    prepared: tuple[Stage, ...]
    parents: Mapping[str, str]
    key_replacements: Mapping[str, Any]
    cost: Cost


class StageBuilder:
    """Builds the stages of one sweep file, each once, parents before their children."""

    def __init__(
        self,
        file: SweepFile,
        folder: Path,
        drafts: Drafts,
        corpora: LocalCorpora,
        cache: Cache,
        problems: ProblemCollector,
    ) -> None:
        self._file, self._folder, self._drafts = file, folder, drafts
        self._corpora, self._cache, self._problems = corpora, cache, problems
        resources = Resources(cpus=float(file.prepare.resources.cpus))
        self._preparation = PreparationStages(cache, corpora, resources)
        self._fields: dict[Hashable, StageFields] = {}
        self._shared = Cache()  # the seeds and parents of a grid ask for the same work again
        self._stages: dict[str, Stage] = {}
        self._built: dict[int, Stage | None] = {}
        self._chosen: dict[Candidates, dict[int, Stage]] = {}
        self._models: dict[str, Stage] = {}
        """Stages that leave a model, by key."""

    def build_all(self) -> None:
        """Build every draft, until nobody would read more problems; none if they are too many."""
        drafts = self._drafts
        count = len(drafts.all) + len(drafts.candidates) * len(self._file.every_seed)
        if count > self._file.max_stages:
            found = f"{count:,} stages with all axes and seeds"
            self._problems.add(self._file.too_many(found, "stages"))
            return
        for number in range(len(drafts.all)):
            if not self._problems.is_full():
                self._build(number)
        for candidates in drafts.candidates:
            self._choose(candidates)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage that was built, parents first, equal ones once, each with its own label."""
        labels = unique_labels(self._stages.values())
        return tuple(
            stage if stage.label == labels[key] else dataclasses.replace(stage, label=labels[key])
            for key, stage in self._stages.items()
        )

    def by_section(self) -> dict[str, tuple[Stage, ...]]:
        """The stages of each section, equal ones once for each way that leads to them."""
        sections: dict[str, list[Stage]] = {name: [] for name in self._file.stages}
        for _, stage in sorted(self._built.items()):
            if stage is not None:
                sections[stage.section].append(stage)
        return {name: tuple(stages) for name, stages in sections.items()}

    def selected(self) -> dict[str, tuple[Stage, ...]]:
        """For each section with `select`, the stages that choose among its own."""
        sections: dict[str, list[Stage]] = {}
        for candidates, chosen in self._chosen.items():
            section = self._drafts.all[candidates.numbers[0]].section
            sections.setdefault(section, []).extend(chosen.values())
        return {name: tuple(stages) for name, stages in sections.items()}

    def _build(self, number: int) -> Stage | None:
        """None if something is wrong, which is reported."""
        if number in self._built:
            return self._built[number]
        draft = self._drafts.all[number]
        if isinstance(draft.parent, int):
            parent = Parent(stage=self._build(draft.parent))
        elif isinstance(draft.parent, Candidates):
            parent = Parent(stage=self._choose(draft.parent).get(draft.seed))
        else:
            parent = draft.parent
        fields = self._fields_of(draft)
        problems = list(fields.problems)
        if parent.problem is not None:
            problems.append(Problem(fields.locate(("from",)), parent.problem))
        stage = None
        try:
            spec = self._checked(fields)
            problems += self._without_effect(spec, draft.choices)
            if not problems and (parent.exists or spec.stands_alone()):
                *needed, stage = self._resolve(spec, fields, parent, draft.seed)
                for each in (*parent.ancestors, *needed, stage):
                    self._stages.setdefault(each.key, each)
        except ConfigError as error:
            problems += [
                dataclasses.replace(
                    problem, path=fields.locate(problem.path), needs=_needs_of(problem, fields)
                )
                for problem in error.problems
                if self._problems.axes_known or not problem.is_missing
            ]
        for point in draft.points if problems else ():
            self._problems.add_at_point(point, *problems)
        self._built[number] = stage
        return stage

    def _without_effect(self, spec: StageConfig, axes: Collection[str]) -> Iterator[Problem]:
        """Yield the axes of the grid over a field that is not in the key of a stage."""
        for axis in (axis for axis, values in self._file.grid.items() if len(values) > 1):
            value: Any = spec
            for name in axis.split(".")[1:] if axis in axes else ():
                if name in getattr(value, "excluded_from_key", ()):
                    fault = f"no result depends on {name}: all its values give the same stage"
                    yield Problem(("grid", axis), fault, "one value, in the stage's section")
                    break
                value = getattr(value, name, None)

    def _choose(self, candidates: Candidates) -> dict[int, Stage]:
        """The stages that choose among candidates, by seed; none if a candidate is wrong."""
        if candidates in self._chosen:
            return self._chosen[candidates]
        built = [self._build(number) for number in candidates.numbers]
        stages = [stage for stage in built if stage is not None]
        first = self._drafts.all[candidates.numbers[0]]
        chosen: dict[int, Stage] = {}
        self._chosen[candidates] = chosen
        is_axis = self._file.selected_axes[first.section] in first.choices  # or it is reported
        if is_axis and len(stages) == len(built):
            spec = self._checked(self._fields_of(first))
            assert isinstance(spec, TrainingConfig), "only a training has the option"
            assert spec.best_of is not None, "the section has it"
            try:
                chosen |= select_stages(spec.best_of, stages)
            except ValueError as error:
                problem = Problem(("stages", first.section, "select", "over"), str(error))
                for number in candidates.numbers:
                    for point in self._drafts.all[number].points:
                        self._problems.add_at_point(point, problem)
            by_key = {stage.key: stage for stage in chosen.values()}
            self._models |= by_key
            self._stages |= by_key
        return chosen

    def _fields_of(self, draft: Draft) -> StageFields:
        place = (draft.section, draft.origins)
        if place not in self._fields:
            section = self._file.stages[draft.section]
            self._fields[place] = apply_axes(draft.section, section, draft.choices)
        return self._fields[place]

    def _checked(self, fields: StageFields) -> StageConfig:
        def read() -> StageConfig:
            given = fields.fields
            if given.get("train") == UNTRAINED and ("train",) in fields.origins:
                # Data and resources of the section itself are those of the points that train.
                others = {name for name in ("data", "resources") if (name,) not in fields.origins}
                given = {name: value for name, value in given.items() if name not in others}
            located = self._corpora.located(given, self._folder, self._file.name)
            return parse_stage(located, self._folder, self._cache)

        return self._shared.get(fields, read)

    def _resolve(
        self, spec: StageConfig, fields: StageFields, parent: Parent, seed: int
    ) -> list[Stage]:
        """The preparation stages that a stage needs, and the stage last. Raises ConfigError."""
        needed: tuple[Stage, ...] = ()
        self._models |= {stage.key: stage for stage in parent.ancestors}
        if parent.stage is not None:
            self._check_parent(spec, parent.stage)
        unswapped, embedding = spec.without_swap()
        if embedding is not None and parent.exists:
            given = fields.fields["embedding"]
            parent = with_swapped_embedding(parent, embedding, given, self._cache)
            needed = parent.ancestors
            spec = unswapped
        axes = {**(parent.stage.axes if parent.stage else {}), **fields.axes}
        if not parent.exists and not isinstance(spec, Pretrain):  # an analysis of no model
            replaced = spec.key_replacements()
            return [make_stage(spec, section=fields.name, axes=axes, key_replacements=replaced)]
        model = parent.model_spec
        work = self._shared.get((fields, model), lambda: self._prepare(spec, fields, model))
        self._check_text(work, parent.stage)
        own, of_stage = work.spec, parent.stage.seed if parent.stage else None
        if isinstance(own, TrainingConfig):
            own, of_stage = dataclasses.replace(own, seed=seed, best_of=None), seed
        elif isinstance(own, SwapEmbedding):
            own = dataclasses.replace(own, seed=of_stage or 0)
        stage = make_stage(
            own,
            section=fields.name,
            axes=axes,
            seed=of_stage,
            parents={**({MODEL: parent.stage.key} if parent.stage else {}), **work.parents},
            external=parent.external,
            key_replacements=work.key_replacements,
            model_spec=work.model_spec,
            cost=work.cost,
        )
        if own.leaves_model:
            self._models[stage.key] = stage
        return [*needed, *work.prepared, stage]

    def _prepare(
        self, spec: StageConfig, fields: StageFields, parent: ModelSpec | None
    ) -> _SharedWork:
        model_spec = model_spec_of(spec, fields.fields, parent, self._cache)
        inputs = inputs_of(spec, fields.fields, model_spec.tokenizer)
        stages, parents, replaced = self._preparation.prepare(spec, model_spec.tokenizer, inputs)
        replaced |= spec.key_replacements()
        if (prefix := spec.prefix_in_key(model_spec.tokenizer)) is not None:
            replaced["prefix"] = prefix
        if isinstance(spec, Pretrain):
            spec = dataclasses.replace(spec, model=model_spec.model)
        learned = learned_parameters_of(model_spec, self._cache)
        cost = cost_of(spec, model_spec.model, model_spec.embedding, learned)
        return _SharedWork(spec, model_spec, tuple(stages), parents, replaced, cost)

    def _lineage(self, stage: Stage | None) -> Iterator[Stage]:
        """Yield a stage and those whose model it goes on with; the first of candidates."""
        while stage is not None:
            yield stage
            keys = stage.parents
            key = keys.get(MODEL) or keys.get(candidate_role(0, stage.seed or 0))
            stage = self._models.get(key or "")

    def _check_parent(self, spec: StageConfig, parent: Stage) -> None:
        if not parent.spec.leaves_model:
            message = f"{parent.section} is a stage of kind {parent.kind}, which produces no model"
            raise ConfigError(Problem(("from",), message))
        for trained in self._lineage(parent):
            if not isinstance(trained.spec, SwapEmbedding | Select):
                break
        if problems := list(spec.parent_problems(trained.spec)):
            raise ConfigError(problems)

    def _check_text(self, work: _SharedWork, parent: Stage | None) -> None:
        """Refuse a loss on text that selected the model, or one that it was trained from."""
        for stage in self._lineage(parent) if work.spec.part_read() is not None else ():
            for key in stage.parents.values() if isinstance(stage.spec, Select) else ():
                _check_unread(work, self._models[key])


def _check_unread(work: _SharedWork, candidate: Stage) -> None:
    trained, section, spec = candidate.spec, candidate.section, work.spec
    assert isinstance(trained, TrainingConfig), "only trainings are selected"
    if trained.train.validation_part != "all" and spec.part_read() != "all":
        return
    read = {key for role, key in candidate.parents.items() if role in trained.held_out()}
    for i, field in enumerate(spec.corpora()):
        if work.parents.get(text_role(i)) in read:
            fault = f"this text selected the model of {section}: the score would be biased"
            halves = f"part: second-half here and train.validation_part: first-half in {section}"
            raise ConfigError(Problem((field,), fault, f"{halves}, or another corpus"))


def _needs_of(problem: Problem, section: StageFields) -> str | None:
    """Return what belongs in place of a wrong value; `problem` is of a path in the section."""
    needs, value = problem.needs, _value(section.fields, problem.path)
    if needs in NUMBERS and isinstance(value, list):
        axis = format_path((section.name, *problem.path))
        return f"{needs}; to compare several, write them under grid: {{{axis}: […]}}"
    if needs in NUMBERS and isinstance(value, str) and (number := _number_meant(value)):
        of_time = problem.path[-1] in MINUTES
        return f"{needs} of minutes" if of_time else f"{needs}; {value} is written {number}"
    if problem.path not in (("train",), ("train", "tokens")):
        return needs
    kind = section.fields.get("kind")
    config = STAGE_TYPES.all().get(kind) if isinstance(kind, str) else None
    if config is not None and config.untrained is not None:
        needs = needs or "a mapping of its settings"  # where there is none
        return f"{needs}; train: {UNTRAINED} extends without training"
    if config is not None and needs is not None and value in (UNTRAINED, None, 0):
        return f"{needs}; only a stage of kind extend goes without training"
    return needs


def _number_meant(text: str) -> str | None:
    """The number that some read in 30m, 0x40, 1,024 or 1:30, which older YAML counts in sixties."""
    if found := _SUFFIXED.fullmatch(text):
        return f"{found[1]}{_EXPONENTS[found[2].lower()]}"
    if _BASED.fullmatch(text):
        return str(int(text, 0))
    if _GROUPED.fullmatch(text):
        return text.replace(",", "")
    if _SIXTIES.fullmatch(text):
        return str(functools.reduce(lambda total, part: total * 60 + int(part), text.split(":"), 0))
    return None


def _value(fields: Mapping[str, Any], path: FieldPath) -> Any:
    value: Any = fields
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
