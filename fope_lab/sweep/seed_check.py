"""Checks that a rule for seeds has something to go by in its sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fope_lab.config.problems import Problem, name_list
from fope_lab.stages.training import TrainingConfig
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.report_section import ReportSection
from fope_lab.sweep.seed_rule import CLAIMS, SeedRule

UNTIL = ("seeds", "until")


def seed_rule_problems(
    rule: SeedRule | None, section: ReportSection, by_section: Mapping[str, Sequence[Stage]] | None
) -> Iterator[Problem]:
    """Yield what is wrong with the rule; without stages, since some are wrong, less is checked."""
    if rule is None:
        return
    if rule.until == CLAIMS:
        if not section.claims:
            yield Problem(UNTIL, "found claims, but report.claims has none to decide")
    elif by_section is not None and not any(map(may_stop_early, _all(by_section))):
        trainings = dict.fromkeys(stage.section for stage in _all(by_section) if stage.spec.trains)
        of = f" of {name_list(trainings)}" if trainings else ""
        yield Problem(UNTIL, f"no training can stop early{of}", "train.stop_at_accuracy")


def may_stop_early(stage: Stage) -> bool:
    """Whether the stage is a training that ends once it has learned its task."""
    spec = stage.spec
    return isinstance(spec, TrainingConfig) and spec.train.stop_at_accuracy is not None


def _all(by_section: Mapping[str, Sequence[Stage]]) -> Iterator[Stage]:
    return (stage for stages in by_section.values() for stage in stages)
