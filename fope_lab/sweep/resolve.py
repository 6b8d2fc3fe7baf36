"""From the cells of a grid to stages: checked, with their parents, their data and their keys.

A stage downstream multiplies with its parents, and equal stages are one: what is resolved here is
remembered by the choices that a stage and its ancestors depend on, and by key.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fope_lab.config.cache import Memo
from fope_lab.config.problems import FieldPath, SweepError, did_you_mean, name_list, shown
from fope_lab.config.pydantic_errors import messages_of
from fope_lab.config.yaml_document import Document
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.model.checkpoint import CheckpointError
from fope_lab.model.huggingface.names import PREFIX
from fope_lab.stages import Pretrain, Resources, StageConfig, TrainingConfig, plain
from fope_lab.stages.labels import label, stage_name
from fope_lab.sweep import cost
from fope_lab.sweep.apply_axes import Filled, fill
from fope_lab.sweep.cross_file import Foreign, JoinError
from fope_lab.sweep.expand import Cell
from fope_lab.sweep.external_model import ExternalModel, read_checkpoint, read_hub_model
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.inputs import inputs_of
from fope_lab.sweep.keys import stage_key
from fope_lab.sweep.kinds import FILE_KINDS, KINDS
from fope_lab.sweep.model_spec import Report, learned_parameters_of, model_spec_of
from fope_lab.sweep.preparation_stages import OwnStages
from fope_lab.sweep.problem_collector import Findings

if TYPE_CHECKING:
    from fope_lab.sweep.spec import SweepFile

__all__ = ["Resolver", "Stage", "label"]

Found = list[tuple[FieldPath, str]]
"""Problems: the place in the file, and the message."""


@dataclass(frozen=True)
class _Parent:
    """What a stage's `from` means in a cell: a parent, or why there is none.

    Neither, if the stage has no `from` or the parent itself has a problem.
    """

    it: Stage | ExternalModel | None = None
    problem: str | None = None


class Resolver:
    """Resolves one cell after another; `stages` are all that were found, parents first, by key.

    `by_name` has the stages of each name in the file, equal ones with other axes included. With
    `axes_known` false, because a part of the grid is wrong, nothing is called missing or ambiguous.
    """

    def __init__(
        self,
        file: SweepFile,
        document: Document,
        foreign: Foreign,
        memo: Memo,
        findings: Findings,
        axes_known: bool,
    ) -> None:
        self._sections = {name: s for name, s in file.stages.items() if isinstance(s, dict)}
        self._document, self._foreign, self._memo = document, foreign, memo
        self._findings, self._axes_known = findings, axes_known
        self._own = OwnStages(memo, Resources(cpus=file.prepare.resources.cpus))
        self._known: dict[Hashable, tuple[Stage | None, Found]] = {}
        self.stages: dict[str, Stage] = {}
        self.by_name: dict[str, list[Stage]] = {name: [] for name in file.stages}

    def resolve(self, cell: Cell) -> None:
        """Find the stages of a cell; what is wrong goes to the findings."""
        own: dict[str, dict[str, Any]] = {name: {} for name in self._sections}
        for axis, choice in cell.choices.items():
            name = axis.partition(".")[0]
            if name in own:
                own[name][axis] = choice
        references = {
            name: own[name][f"{name}.from"].value if f"{name}.from" in own[name] else s.get("from")
            for name, s in self._sections.items()
        }
        resolved: dict[str, Stage | None] = {}
        for name in self._parents_first(references, own, cell):
            parent = self._parent(references[name], name, cell, resolved)
            choices = own[name]
            # A parent that is equal to another may have other axes, so that it is told by `id`.
            identity = (
                name,
                tuple(sorted((axis, choice.origin) for axis, choice in choices.items())),
                id(parent.it) if parent.it else parent.problem,
                cell.seed,
            )
            if identity not in self._known:
                filled = fill(name, self._sections[name], cell)
                self._known[identity] = self._checked(filled, cell.seed, parent, choices)
            resolved[name], found = self._known[identity]
            for at, message in found:
                self._findings.add(at, message, cell)

    def _parents_first(
        self, references: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]], cell: Cell
    ) -> list[str]:
        """The stages in an order in which parents come before children, but for cycles."""
        order: dict[str, None] = {}
        for start in references:
            chain: dict[str, None] = {}
            name = start
            while name in references and name not in order and name not in chain:
                chain[name] = None
                name = references[name] if isinstance(references[name], str) else ""
            if name in chain:
                cycle = list(chain)[list(chain).index(name) :]
                choice = own[name].get(f"{name}.from")
                at = choice.origin if choice else ("stages", name, "from")
                self._findings.add(at, f"a cycle: {' → '.join([*cycle, name])}", cell)
            order.update(dict.fromkeys(reversed(chain)))
        return list(order)

    def _parent(
        self, reference: Any, name: str, cell: Cell, resolved: Mapping[str, Stage | None]
    ) -> _Parent:
        if not isinstance(reference, str) or not reference:
            return _Parent()  # what is wrong with it, the section's own check says
        if reference in self.by_name:
            return _Parent(resolved.get(reference))
        try:
            if found := self._outside(reference, cell):
                return _Parent(found)
        except SweepError:
            return _Parent()  # reported where the reference was first read
        except (LookupError, CheckpointError) as error:
            known = self._axes_known or not isinstance(error, JoinError)
            return _Parent(problem=str(error.args[0]) if known else None)
        names = [other for other in self.by_name if other != name]
        near = did_you_mean(reference, names)
        others = "FILE.yaml#STAGE, a checkpoint folder, or hf:NAME@COMMIT"
        return _Parent(
            problem=f"names nothing: {reference!r} is no stage of this file{near} "
            f"(allowed: {name_list([*names, others])})"
        )

    def _outside(self, reference: str, cell: Cell) -> Stage | ExternalModel | None:
        """What a reference names outside this file, if it looks as if it did."""
        base = self._document.path.parent
        if reference.startswith(PREFIX):
            return self._memo.get(("hub", reference), lambda: read_hub_model(reference))
        if "#" in reference:
            stage = self._foreign.parent(reference, cell)
            for ancestor in self._foreign.ancestors(reference, stage):
                self.stages.setdefault(ancestor.key, ancestor)
            return stage
        if "/" in reference or os.path.exists(base / reference):
            key = ("checkpoint", reference, base)
            return self._memo.get(key, lambda: read_checkpoint(reference, base))
        return None

    def _checked(
        self, filled: Filled, seed: int, parent: _Parent, choices: Mapping[str, Any]
    ) -> tuple[Stage | None, Found]:
        """The stage of a filled section, or None, and what is wrong with it."""
        found: Found = list(filled.problems)

        def report(path: FieldPath, message: str) -> None:
            if self._axes_known or not message.startswith("is missing"):
                found.append((filled.locate(path), message))

        if parent.problem is not None:
            report(("from",), parent.problem)
        spec = self._spec(filled.value, seed, report)
        stage = None
        if spec is not None and not found and (parent.it or spec.stands_alone()):
            axes = dict(parent.it.axes) if isinstance(parent.it, Stage) else {}
            axes |= {axis: choice.value for axis, choice in choices.items()}
            if parent.it is None and not isinstance(spec, Pretrain):
                stage = self._without_model(filled, spec, axes)
            else:
                stage = self._stage(filled, spec, axes, parent.it, report)
        if stage is not None:
            self._add(stage)
            self.by_name[stage.section].append(stage)
        return stage, found

    def _spec(self, section: dict[str, Any], seed: int, report: Report) -> StageConfig | None:
        name = section.get("kind")
        if name not in FILE_KINDS:
            near = did_you_mean(name, FILE_KINDS)
            what = "is missing" if name is None else f"unknown kind {shown(name)}{near}"
            report(("kind",), f"{what} (allowed: {name_list(FILE_KINDS)})")
            return None
        kind = KINDS[name]
        for outside in kind.outside_file.keys() & section.keys():
            report((outside,), kind.outside_file[outside])
        if kind.trains:
            section = {**section, "seed": seed}
        base = self._document.path.parent
        try:
            return kind.model_validate(section, context={"base": base, "memo": self._memo})
        except ValidationError as error:
            for path, message in messages_of(error, kind):
                report(path, message)
            return None

    def _stage(
        self,
        filled: Filled,
        spec: StageConfig,
        axes: dict[str, Any],
        parent: Stage | ExternalModel | None,
        report: Report,
    ) -> Stage | None:
        if isinstance(parent, Stage) and not _can_follow(spec, parent, report):
            return None
        model_spec = model_spec_of(
            spec, filled.value, parent.model_spec if parent else None, self._memo, report
        )
        if model_spec is None:
            return None
        inputs = inputs_of(spec, filled.value, model_spec.tokenizer, report)
        if inputs is None:
            return None
        parents = {"from": parent.key} if isinstance(parent, Stage) else {}
        checkpoints = {"from": str(parent.path)} if isinstance(parent, ExternalModel) else {}
        try:
            maker, replaced = self._tokenizer(model_spec.tokenizer, spec)
            parents |= maker
            replaced |= spec.identities()
        except DataError as error:
            report(("tokenizer",) if _names_tokenizer(spec) else ("from",), str(error))
            return None
        for role, (corpus, path, split) in inputs.items():
            try:
                prepare = self._own.prepare(corpus, model_spec.tokenizer, split)
                parents[role] = self._add(prepare).key
            except DataError as error:
                report(path, str(error))
                return None
        if isinstance(spec, TrainingConfig):
            seed: int | None = spec.seed
        else:
            seed = parent.seed if isinstance(parent, Stage) else None
        if isinstance(spec, Pretrain):
            spec = spec.model_copy(update={"model": model_spec.model})
        identities = {**parents, **({"from": parent.key} if parent else {})}
        return Stage(
            key=stage_key(spec, identities, replaced),
            label=stage_name(filled.stage, axes, seed),
            section=filled.stage,
            kind=spec.kind,
            spec=spec,
            config=plain(spec),
            axes=axes,
            seed=seed,
            parents=parents,
            checkpoints=checkpoints,
            model_spec=model_spec,
            cost=cost.estimate(
                spec, model_spec.model, learned_parameters_of(model_spec, self._memo)
            ),
        )

    def _without_model(self, filled: Filled, spec: StageConfig, axes: dict[str, Any]) -> Stage:
        """A stage that looks at no model, and so has neither parents nor a seed."""
        return Stage(
            key=stage_key(spec, {}, spec.identities()),
            label=stage_name(filled.stage, axes, None),
            section=filled.stage,
            kind=spec.kind,
            spec=spec,
            config=plain(spec),
            axes=axes,
            seed=None,
            parents={},
            checkpoints={},
            model_spec=None,
            cost=cost.Cost(),
        )

    def _tokenizer(
        self, recipe: TokenizerRecipe, spec: StageConfig
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """The parent that makes the tokenizer of a stage, and what the stage's key has instead of
        its name; neither for a stage that finds the tokenizer with the model that it starts from.

        Raises DataError.
        """
        found = self._own.tokenizer(recipe)
        maker, identity = {}, {}
        if isinstance(found, Stage):
            maker = {"tokenizer": self._add(found).key}
        elif recipe != "byte":
            identity = {"tokenizer": found}
        return (maker, identity) if _names_tokenizer(spec) else ({}, {})

    def _add(self, stage: Stage) -> Stage:
        return self.stages.setdefault(stage.key, stage)


def _can_follow(spec: StageConfig, parent: Stage, report: Report) -> bool:
    """Whether a stage can start from what another one leaves; why not is reported."""
    if not parent.spec.trains:
        report(("from",), f"{parent.section} is of kind {parent.kind}, which leaves no model")
        return False
    misfits = list(spec.parent_problems(parent.spec))
    for path, message in misfits:
        report(path, message)
    return not misfits


def _names_tokenizer(spec: StageConfig) -> bool:
    """Whether a stage says itself which tokenizer is its, or the model that it starts from does."""
    return getattr(spec, "tokenizer", None) is not None
