"""The data of a sweep's report, read from the store, with the provenance of it and its stages."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from fope_lab.config.atomic_files import sha256_file
from fope_lab.report.claims.judge import StageSeconds, Verdict
from fope_lab.report.claims.seeds import (
    CountedSeeds,
    counted_results,
    counted_seeds,
    judge_sweep,
    seed_test_of,
)
from fope_lab.report.compare.comparability import mark_unequal, read_history
from fope_lab.report.compare.differences import BeforeAfter, findings, pair_before_after
from fope_lab.report.compare.paper_comparison import PaperComparison, compare_with_paper
from fope_lab.report.compare.published import load_published
from fope_lab.report.results.cells import Cell, StageResult, build_cells, by_key, read_stages
from fope_lab.report.results.layout import (
    MetricGroup,
    group_metrics,
    named_metrics,
    requested_groups,
    stages_without_cells,
    unique_endings,
)
from fope_lab.report.results.recorded import (
    AnalysisResult,
    HeatmapGroup,
    TrainingCurves,
    group_heatmaps,
    group_training_curves,
    read_analyses,
)
from fope_lab.report.results.settings import (
    SettingGroup,
    group_over_settings,
    rate_notes,
)
from fope_lab.report.results.summary import Summary, summarise
from fope_lab.stages.metric import ARRAYS
from fope_lab.statistics.decision import SeedTest
from fope_lab.store.checkout import Checkout, package_versions
from fope_lab.store.root import Store, StoreSnapshot
from fope_lab.store.source import package_digest
from fope_lab.sweep.graph import Sweep
from fope_lab.sweep.plan import ChangesSince
from fope_lab.sweep.sweep_file import SeedRule

DRAWN_WITH = ("jinja2", "markupsafe", "matplotlib", "numpy", "pyyaml", "scipy")
"""The packages whose versions can change a page."""


@dataclass(frozen=True)
class RunLinks:
    """The MLflow run of each stage and the address of its page, by the stage's key.

    A stage may lack either of them. `views` has the addresses of MLflow's views of the sweep, by
    their names.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results of a sweep at one moment, from a single reading of the store. Tables and figures
    show the metrics that the sweep file requests; `cells` holds all of them."""

    name: str
    description: str
    path: str
    generated: datetime
    provenance: Mapping[str, str]
    stages: tuple[StageResult, ...]
    cells: tuple[Cell, ...]
    table_groups: tuple[MetricGroup, ...]  # drawn by render/tables.py
    figure_groups: tuple[MetricGroup, ...]
    before_after: tuple[BeforeAfter, ...]
    training_curves: tuple[TrainingCurves, ...]
    heatmaps: tuple[HeatmapGroup, ...]
    analyses: tuple[AnalysisResult, ...]
    summary: Summary
    without_results: Mapping[str, list[StageResult]]  # by section of the sweep file
    table_settings: tuple[SettingGroup, ...]
    figure_settings: tuple[SettingGroup, ...]
    unequal: Mapping[str, tuple[str, ...]]  # stage's key → what its model differs in from others
    verdicts: tuple[Verdict, ...]
    seed_rule: SeedRule | None  # None if the sweep has a list of seeds
    seed_test: SeedTest
    counted_seeds: tuple[CountedSeeds, ...]  # of a rule that counts some of them
    paper: PaperComparison | None  # None if the sweep names no paper
    links: RunLinks
    inputs: str  # the digest of what all of this follows from, but for its date


def build_report(
    sweep: Sweep,
    store: Store,
    *,
    provenance: Mapping[str, object],
    links: RunLinks = RunLinks(),
    seconds: StageSeconds | None = None,
) -> Report:
    """Read the stages of `sweep` from `store`, and aggregate and compare their results, for
    orchestration/run_sweeps.py.

    `provenance` (versions, commit, places) and `links` are shown unchanged. `seconds` says how long
    stages take, to price the seeds that would decide a claim.
    """
    section, by_section, store = sweep.report, sweep.by_section, StoreSnapshot.of(store)
    inputs = with_links(report_inputs(sweep, store, provenance), links)
    # All results count, unless a rule says which seeds do.
    results = counted_results(sweep, read_stages(sweep.stages, store))
    test = seed_test_of(sweep)
    stages, counted = results.stages, results.counted
    known = by_key(stages)
    cells = build_cells(counted)
    tables, figures = (
        named_metrics(texts, by_section) for texts in (section.tables, section.figures)
    )
    named = {(name, metric.name) for name, metric in [*(tables or ()), *(figures or ())]}
    histories = {key: read_history(known, key) for key in known}
    groups = [
        replace(mark_unequal(group, histories), rates=rate_notes(group, known))
        for group in group_metrics(cells, counted, named)
    ]
    table_groups, figure_groups = (
        requested_groups(groups, tables),
        requested_groups(groups, figures),
    )
    over_settings = group_over_settings(cells, stages)
    trainings = None if figures is None else {name for name, _ in figures}
    verdicts = judge_sweep(sweep, results, seconds)
    if any(one.would_decide and one.would_decide.seconds for one in verdicts):
        inputs = digest_of_texts([inputs, repr(verdicts)])  # times of any sweep went into the price
    published = None if sweep.paper is None else load_published(sweep.paper)
    return Report(
        name=sweep.name,
        description=sweep.description or "",
        path=str(sweep.path),
        generated=datetime.now(UTC),
        provenance={name: str(value) for name, value in provenance.items()},
        stages=stages,
        cells=cells,
        table_groups=table_groups,
        figure_groups=figure_groups,
        before_after=pair_before_after(table_groups, counted),
        training_curves=group_training_curves(counted, trainings),
        heatmaps=group_heatmaps(counted),
        analyses=read_analyses(counted),
        summary=summarise(stages, findings(table_groups, test)),
        without_results=stages_without_cells(counted, cells),
        table_settings=_of_groups(over_settings, table_groups),
        figure_settings=_of_groups(over_settings, figure_groups),
        unequal={
            key: series.unequal
            for group in groups
            for series in group.series
            for cell in series.cells.values()
            for key in cell.keys
            if series.unequal
        },
        verdicts=verdicts,
        seed_rule=sweep.seed_rule,
        seed_test=test,
        counted_seeds=counted_seeds(sweep, stages),
        paper=None if published is None else compare_with_paper(published, cells, counted),
        links=links,
        inputs=inputs,
    )


def report_inputs(sweep: Sweep, store: StoreSnapshot, provenance: Mapping[str, object]) -> str:
    """The SHA-256 of all that the report of a sweep follows from, but for its links, its date and
    what seeds would cost. No result is read: DONE has the digest of each."""
    described = replace(sweep, stages=(), by_section={}, selected={})
    parts = [_code_digest(), repr(described), repr(provenance)]
    for stage in sweep.stages:
        folder = store.folder(stage.kind, stage.key)
        about = (stage.key, stage.label, stage.section, stage.axes, stage.config)
        parts.append(
            repr((*about, stage.parents, stage.checkpoints, folder.state(), folder.done()))
        )
        if stage.spec.picture() is not None and (checkpoint := folder.checkpoint()) is not None:
            arrays = checkpoint.path / ARRAYS
            parts.append(sha256_file(arrays) if arrays.is_file() else "")
    for section in (*sweep.by_section.values(), *sweep.selected.values()):
        parts.append(" ".join(stage.key for stage in section))
    return digest_of_texts(parts)


def with_links(inputs: str, links: RunLinks) -> str:
    """The same with the links that a report shows."""
    return digest_of_texts([inputs, repr(links)])


@functools.cache
def _code_digest() -> str:
    versions = {name: importlib.metadata.version(name) for name in DRAWN_WITH}
    return digest_of_texts([platform.python_version(), repr(versions), package_digest()])


def digest_of_texts(texts: Iterable[str]) -> str:
    """The SHA-256 of texts one after the other."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def _of_groups(
    settings: Iterable[SettingGroup], groups: Iterable[MetricGroup]
) -> tuple[SettingGroup, ...]:
    """The numbers over settings of the metrics that are shown anyway."""
    shown = {group.key for group in groups}
    return tuple(one for one in settings if (one.section, one.metric.name) in shown)


def provenance(sweep: Sweep, store: Store) -> dict[str, str]:
    """Versions, commit and machine of the report, and what the finished stages were made by.

    A commit has `+` if the code differed from it. `changed since` counts, for each file or
    parent that has changed, the stages that ran with it.
    """
    facts = {"sweep file": str(sweep.path), **package_versions()}
    if checkout := Checkout.current():
        facts["commit"] = str(checkout)
    facts["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPU cores"
    since = ChangesSince(store)
    stages = {stage.key: stage for stage in sweep.stages}
    commits: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    for stage in sweep.stages:
        makers = store.folder(stage.kind, stage.key).makers()
        commits.update({str(Checkout.recorded(made_by) or "not recorded") for made_by in makers})
        changed.update(since.of(stage, stages))
    names = unique_endings(changed, "/")
    named = Counter({names[path]: count for path, count in changed.items()})
    for name, counts in (("stages made at commit", commits), ("changed since", named)):
        if counts:
            facts[name] = ", ".join(f"{of} ({count})" for of, count in counts.most_common())
    return facts
