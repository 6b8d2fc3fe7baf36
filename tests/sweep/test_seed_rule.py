"""The rule that adds seeds: what it makes of a sweep, and one clear error for each wrong one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jsonschema
import pytest
import yaml
from sweep_files import keys, load, told

from fope_lab.sweep.load import seed_rule_problems
from fope_lab.sweep.schema import sweep_json_schema
from fope_lab.sweep.sweep_file import SeedRule, StoppedEarly

FILE = """\
name: x
seeds: SEEDS
stages:
  p: {kind: pretrain, model: tiny, tokenizer: symbols:parity,
      data: {task: algorithmic, subtask: parity, length: 54},
      train: {tokens: 1e5, batch_tokens: 5400, learning_rate: 1e-3, validate_every: 5STOP}}
  e: {kind: algorithmic, from: p, subtask: parity, lengths: [50, 100], count: 10}
grid: {p.embedding: [rope, nope]}
REPORT
"""
STOP = ", stop_at_accuracy: 1"
CLAIMS = "report: {claims: ['e.algorithmic@50: rope > nope']}"


def text(seeds: str, *, stop: str = STOP, report: str = CLAIMS) -> str:
    return FILE.replace("SEEDS", seeds).replace("STOP", stop).replace("REPORT", report)


@pytest.mark.parametrize(
    ("until", "parsed"),
    [("claims", "claims"), ("{stopped_early: 3}", StoppedEarly(stopped_early=3))],
)
def test_the_stages_are_those_of_a_list_of_all_seeds(
    tmp_path: Path, until: str, parsed: str | StoppedEarly
) -> None:
    rule = load(tmp_path, text(f"{{first: 2, at_most: 4, until: {until}}}"))
    assert rule.seed_rule == SeedRule(first=2, at_most=4, until=parsed)
    assert rule.seeds == (0, 1, 2, 3)
    listed = load(tmp_path, text("[0, 1, 2, 3]"))
    assert listed.seed_rule is None
    assert keys(rule) == keys(listed)


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ("{first: 5, at_most: 4, until: claims}", "first: found 5, needs no more than at_most (4)"),
        ("{first: 1, at_most: 4, until: claims}", "first: found 1, needs at least 2: one seed"),
        ("{first: true, at_most: 4, until: claims}", "first: found true, needs a whole number"),
        ("{first: -2, at_most: 4, until: claims}", "first: found -2, needs at least 1"),
        ("{first: 2, at_most: 4.5, until: claims}", "at_most: found 4.5, needs a whole number"),
        ("{frist: 2, first: 2, at_most: 4, until: claims}", "frist: unknown key 'frist'; did you"),
        ("{first: 2, at_most: 4, until: claim}", "until: unknown rule 'claim'; did you mean 'cl"),
        ("{first: 2, at_most: 4, until: {stopped: 2}}", "until: unknown rule 'stopped'; did you"),
        ("{first: 2, at_most: 4, until: stopped_early}", "until: found 'stopped_early', needs cl"),
        ("{first: 2, at_most: 4, until: 5}", "until: found 5, needs claims, or {stopped_early"),
        ("{first: 2, at_most: 300, until: claims}",
         "at_most: found 300, needs at most 200, as far as the sequential test is exact"),
        ("{first: 2, at_most: 4, until: {stopped_early: 5}}",
         "until.stopped_early: found 5, needs no more than at_most (4)"),
        ("{first: 2, at_most: 4, until: {stopped_early: 0}}",
         "until.stopped_early: found 0, needs at least 1"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_one_error(tmp_path: Path, seeds: str, expected: str) -> None:
    [found] = told(tmp_path, text(seeds))
    assert found.startswith(f"2 seeds.{expected}")


@pytest.mark.parametrize(
    ("first", "until", "always"),
    [(2, "{stopped_early: 5}", 5), (6, "{stopped_early: 5}", 6), (2, "claims", 2)],
)
def test_as_many_seeds_always_run_as_must_stop_early(
    tmp_path: Path, first: int, until: str, always: int
) -> None:
    rule = load(tmp_path, text(f"{{first: {first}, at_most: 9, until: {until}}}")).seed_rule
    assert rule is not None
    assert rule.always == always


def test_a_rule_needs_something_to_go_by(tmp_path: Path) -> None:
    [found] = told(tmp_path, text("{first: 2, at_most: 4, until: claims}", report=""))
    assert found == "2 seeds.until: found claims, but report.claims has none to decide"
    [found] = told(tmp_path, text("{first: 2, at_most: 4, until: {stopped_early: 2}}", stop=""))
    assert found == ("2 seeds.until: no training of p can stop early, needs train.stop_at_accuracy")


def test_the_trainings_of_another_file_are_not_those_of_the_rule(tmp_path: Path) -> None:
    first = text("[0, 1, 2, 3]", report="").replace("[rope, nope]", "[rope]")
    (tmp_path / "first.yaml").write_text(first)
    evaluation = """\
name: y
seeds: {first: 2, at_most: 4, until: {stopped_early: 2}}
stages:
  e: {kind: algorithmic, from: first.yaml#p, subtask: parity, lengths: [50], count: 10}
"""
    [found] = told(tmp_path, evaluation)
    assert found == "2 seeds.until: no training can stop early, needs train.stop_at_accuracy"


def test_too_many_seeds_are_a_fault_of_the_rule(tmp_path: Path) -> None:
    [found] = told(tmp_path, text("{first: 2, at_most: 100000, until: {stopped_early: 2}}"))
    assert found.startswith("2 seeds: makes 200,000 grid points with all seeds")


def test_claims_about_no_trained_model_need_no_seeds(tmp_path: Path) -> None:
    file = """\
name: x
seeds: {first: 2, at_most: 4, until: claims}
stages: {figure: {kind: analysis, analysis: decay}}
report: {claims: ['figure.constant_near: > constant_far']}
"""
    fault = "found claims, but no claim is about models that the sweep trains under seeds"
    assert told(tmp_path, file) == [f"2 seeds.until: {fault}"]


def test_a_stage_that_reads_all_seeds_needs_a_list(tmp_path: Path) -> None:
    """Such as one that chooses a setting by the mean over the seeds."""
    sweep = load(tmp_path, text("{first: 2, at_most: 3, until: claims}"))
    assert not list(
        seed_rule_problems(sweep.seed_rule, sweep.report, sweep.stages, sweep.by_section)
    )
    trainings = [stage for stage in sweep.stages if stage.section == "p"]
    parents = {f"candidate.{n}": stage.key for n, stage in enumerate(trainings)}
    choice = dataclasses.replace(trainings[0], key="choice", label="choice", parents=parents)
    stages = [*sweep.stages, choice]
    [found] = seed_rule_problems(sweep.seed_rule, sweep.report, stages, sweep.by_section)
    assert str(found).startswith("seeds: found a rule, and choice reads trainings under several")


@pytest.mark.parametrize(
    ("seeds", "right"),
    [
        ("[0, 1]", True),
        ("{first: 2, at_most: 4, until: claims}", True),
        ("{first: 2, at_most: 4, until: {stopped_early: 2}}", True),
        ("{first: 2, at_most: 4}", False),
        ("{first: 2, at_most: 4, until: claim}", False),
        ("3", False),
    ],
)
def test_editors_check_it_by_the_schema(seeds: str, right: bool) -> None:
    content = yaml.safe_load(text(seeds))
    schema = sweep_json_schema()["properties"]["seeds"]
    assert jsonschema.Draft202012Validator(schema).is_valid(content["seeds"]) == right
