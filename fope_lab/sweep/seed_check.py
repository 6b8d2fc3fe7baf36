"""Checks that a rule for seeds has something to go by in its sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fope_lab.config.problems import Problem, name_list
from fope_lab.stages.training import TrainingConfig
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.report_section import ReportSection
from fope_lab.sweep.seed_rule import CLAIMS, UNTIL, SeedRule


def seed_rule_problems(
    rule: SeedRule | None,
    section: ReportSection,
    stages: Sequence[Stage] | None,
    by_section: Mapping[str, Sequence[Stage]] | None,
) -> Iterator[Problem]:
    """Yield what is wrong with the rule; without stages, since some are wrong, less is checked.

    `by_section` has the stages of the file's own sections, whose seeds the rule is about.
    """
    if rule is None:
        return
    if rule.until == CLAIMS and not section.claims:
        yield Problem(UNTIL, "found claims, but report.claims has none to decide")
    if stages is None:
        return
    own = [stage for found in (by_section or {}).values() for stage in found]
    if rule.until != CLAIMS and not any(map(may_stop_early, own)):
        trainings = dict.fromkeys(stage.section for stage in own if stage.spec.trains)
        of = f" of {name_list(trainings)}" if trainings else ""
        yield Problem(UNTIL, f"no training{of} can stop early", "train.stop_at_accuracy")
    seeds = {stage.key: stage.seed for stage in stages}
    for stage in stages:
        read = {seeds[key] for key in stage.parents.values() if key in seeds} - {None}
        if len(read) > 1:
            fault = f"found a rule, and {stage.label} reads trainings under several seeds"
            yield Problem(("seeds",), fault, "a list, since such a stage waits for all of them")
            return


def may_stop_early(stage: Stage) -> bool:
    """Whether the stage is a training that ends once it has learned its task."""
    spec = stage.spec
    return isinstance(spec, TrainingConfig) and spec.train.stop_at_accuracy is not None
