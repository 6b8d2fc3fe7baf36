"""A checked sweep and its stages: the nodes of the graph that a plan walks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fope_lab.config.roles import MODEL
from fope_lab.stages.base import StageConfig
from fope_lab.stages.key import config_json, stage_key
from fope_lab.stages.labels import stage_label
from fope_lab.stages.training import TrainingConfig
from fope_lab.sweep.cost import Cost
from fope_lab.sweep.local_corpora import KnownCorpus, LocalCorpus
from fope_lab.sweep.model_spec import ExternalModel, ModelSpec
from fope_lab.sweep.report_section import ReportSection
from fope_lab.sweep.sweep_file import SeedRule


@dataclass(frozen=True)
class Stage:
    """One unit of work, checked and with its identity. `section` is its name in the sweep file,
    `label` that name with the axes and seed. `parents` are the keys of the stages that it needs, by
    role (config/roles.py), and `checkpoints` the folders that it starts from. `missing_files` are
    gone, so that the stage can't run."""

    key: str
    label: str
    section: str
    kind: str
    spec: StageConfig
    axes: dict[str, Any]
    seed: int | None
    parents: dict[str, str]
    checkpoints: dict[str, str]
    model_spec: ModelSpec | None
    cost: Cost
    missing_files: tuple[str, ...] = ()

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        return config_json(self.spec)

    @property
    def may_stop_early(self) -> bool:
        """Whether it is a training that ends once it has learned its task."""
        spec = self.spec
        return isinstance(spec, TrainingConfig) and spec.train.stop_at_accuracy is not None

    @property
    def embedding(self) -> str | None:
        return self.model_spec.embedding_label if self.model_spec else None

    @property
    def scale(self) -> str | None:
        return self.model_spec.scale if self.model_spec else None


@dataclass(frozen=True)
class Sweep:
    """A checked sweep: its stages, parents before their children.

    `by_section` has the stages of each section, equal ones for each way that leads to them: tables
    show the first way, claims know every way. `selected` has, for each section with `select`, the
    stages that others start from. The files of `missing_corpora` are gone, and the store knows
    their content. `seed_rule` says which of the `seeds` are needed; without one, all are.
    """

    path: Path
    name: str
    description: str
    seeds: tuple[int, ...]
    stages: tuple[Stage, ...]
    by_section: Mapping[str, tuple[Stage, ...]] = field(default_factory=dict, repr=False)
    selected: Mapping[str, tuple[Stage, ...]] = field(default_factory=dict, repr=False)
    report: ReportSection = field(default_factory=ReportSection)
    paper: str | None = None
    seed_rule: SeedRule | None = None
    local_corpora: tuple[LocalCorpus, ...] = ()
    missing_corpora: tuple[KnownCorpus, ...] = ()


def make_stage(
    spec: StageConfig,
    *,
    section: str,
    label: str | None = None,
    axes: Mapping[str, Any] | None = None,
    seed: int | None = None,
    parents: Mapping[str, str] | None = None,
    external: ExternalModel | None = None,
    key_replacements: Mapping[str, Any] | None = None,
    model_spec: ModelSpec | None = None,
    cost: Cost | None = None,
    missing_files: tuple[str, ...] = (),
) -> Stage:
    """Return a stage with its key and label. `external` is the model that it starts from, unless a
    parent makes it; `key_replacements` replace fields of the configuration in the key."""
    axes, parents = dict(axes or {}), dict(parents or {})
    origin = {MODEL: external.key} if external else {}
    return Stage(
        key=stage_key(spec, parents | origin, key_replacements),
        label=label or stage_label(section, axes, seed),
        section=section,
        kind=spec.kind,
        spec=spec,
        axes=axes,
        seed=seed,
        parents=parents,
        checkpoints={MODEL: str(external.path)} if external else {},
        model_spec=model_spec,
        cost=cost or Cost(),
        missing_files=missing_files,
    )
