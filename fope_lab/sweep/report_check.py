"""Checks of the report section and of the rule for seeds against the sweep's stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fope_lab.config.problems import FieldPath, Problem, format_path, name_list
from fope_lab.stages.labels import distinguish
from fope_lab.stages.training import TrainingConfig
from fope_lab.sweep.claims.compare import compare
from fope_lab.sweep.claims.grammar import parse_claim, parse_quantity
from fope_lab.sweep.claims.lookup import Catalogue
from fope_lab.sweep.claims.statement import Claim, ClaimError
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.report_section import ReportSection
from fope_lab.sweep.sweep_file import CLAIMS, UNTIL, SeedRule

MOST_CLAIMS = 100
"""How many claims a file may make about as many stages as `max_stages` allows. About fewer stages,
it may make more in proportion."""


def report_problems(
    section: ReportSection,
    by_section: Mapping[str, Sequence[Stage]] | None,
    max_stages: int,
    rule: SeedRule | None = None,
) -> Iterator[Problem]:
    """Yield what is wrong with the section, each with its place in the file, or that a rule adds
    seeds until claims are decided that no seed concerns. Without the stages, because something is
    wrong with them, only the form of the texts is checked."""
    stages = sum(len(found) for found in (by_section or {}).values())
    if len(section.stated) * stages > MOST_CLAIMS * max_stages:
        most = MOST_CLAIMS * max_stages // stages
        fault = f"{len(section.stated):,} claims about {stages:,} stages"
        limit = f"allowed: at most {most:,}, unless max_stages says more"
        yield Problem(("report", "claims"), f"{fault} ({limit})")
        return
    catalogue = None if by_section is None else Catalogue(by_section)
    first: dict[Claim, FieldPath] = {}
    seeded: list[bool] = []
    for stated in section.stated:
        try:
            claim = parse_claim(stated.text)
            if (same := first.setdefault(claim.canonical, stated.path)) != stated.path:
                raise ClaimError(f"says the same as {format_path(('claims', *same))}")
            if catalogue is not None:
                numbers = (n for one in compare(claim, catalogue).combinations for n in one.numbers)
                seeded += [seed is not None for number in numbers for seed in number.stages]
        except ClaimError as error:
            seeded.append(True)
            yield Problem(("report", "claims", *stated.path), str(error))
    if rule is not None and rule.until == CLAIMS and seeded and not any(seeded):
        fault = "found claims, but no claim is about models that the sweep trains under seeds"
        yield Problem(UNTIL, fault)
    for part, texts in (("tables", section.tables), ("figures", section.figures)):
        for i, text in enumerate(texts or ()):
            try:
                quantity = parse_quantity(text)
                if catalogue is not None:
                    catalogue.find(quantity, in_table=True)
            except ClaimError as error:
                yield Problem(("report", part, i), str(error))


def seed_rule_problems(
    rule: SeedRule | None,
    section: ReportSection,
    stages: Sequence[Stage] | None,
    by_section: Mapping[str, Sequence[Stage]] | None,
) -> Iterator[Problem]:
    """Yield what is wrong with the rule; without stages, since some are wrong, less is checked.
    `by_section` has the stages of the file's own sections, whose seeds the rule is about."""
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
            name = distinguish(stages)[stage.key]
            fault = f"found a rule, and {name} reads trainings under several seeds"
            yield Problem(("seeds",), fault, "a list, since such a stage waits for all of them")
            return


def may_stop_early(stage: Stage) -> bool:
    """Whether the stage is a training that ends once it has learned its task."""
    spec = stage.spec
    return isinstance(spec, TrainingConfig) and spec.train.stop_at_accuracy is not None
