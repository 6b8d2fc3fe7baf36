"""The top level of a sweep file with its rule for seeds; all problems are told at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jsonschema
import pytest
import yaml
from sweep_files import (
    BASE,
    PRETRAIN,
    PRETRAIN_LINE,
    keys,
    load,
    of,
    problems,
    told,
    write,
)

from fope_lab.sweep import load_sweep
from fope_lab.sweep.load import seed_rule_problems
from fope_lab.sweep.schema import sweep_json_schema
from fope_lab.sweep.sweep_file import SeedRule, StoppedEarly

PERPLEXITY_LINE = "{kind: perplexity, from: p, corpus: c4, lengths: [64]}"


def test_a_sweep_has_what_the_file_says(tmp_path: Path) -> None:
    sweep = load(tmp_path, {**BASE, "description": "why", "seeds": [3, 1]})
    assert (sweep.name, sweep.description, sweep.seeds) == ("base", "why", (3, 1))
    assert sweep.path == tmp_path / "sweep.yaml"
    assert [stage.seed for stage in of(sweep, "pretrain")] == [3, 1]
    assert list(sweep.by_section) == sorted(BASE["stages"])
    assert load(tmp_path, BASE).seeds == (0,)


def test_parents_come_before_children_whatever_the_order_in_the_file(tmp_path: Path) -> None:
    sweep = load(tmp_path, {**BASE, "seeds": [0, 1]})
    done: set[str] = set()
    for stage in sweep.stages:
        assert set(stage.parents.values()) <= done
        done.add(stage.key)
    assert len(done) == len(sweep.stages)


def test_children_inherit_their_parents_seed(tmp_path: Path) -> None:
    sweep = load(tmp_path, {**BASE, "seeds": [0, 7]})
    by_key = {stage.key: stage for stage in sweep.stages}
    for stage in sweep.stages:
        if "from" in stage.parents:
            assert stage.seed == by_key[stage.parents["from"]].seed
    assert {stage.seed for stage in of(sweep, "passkey")} == {0, 7}
    assert {stage.seed for stage in of(sweep, "prepare-data")} == {None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["- is empty, needs a mapping with name and stages"]),
        ("- a\n", ["1 found ['a'], needs a mapping with name and stages"]),
        ("name: x\n", ["1 stages: is missing"]),
        ("name: x\nstages: {}\n", ["2 stages: found {}, needs at least one entry"]),
        ("name: x\nstages:\n  p:\n", ["3 stages.p: found nothing, needs a mapping"]),
        (
            f"name: x\nstages:\n  p:\n  c: {PERPLEXITY_LINE}\n",
            ["3 stages.p: found nothing, needs a mapping"],  # and no word about c's parent
        ),
        (f"name:\nstages:\n  p: {PRETRAIN_LINE}\n", ["1 name: found nothing, needs text"]),
        (f"name: a/b\nstages:\n  p: {PRETRAIN_LINE}\n",
         ["1 name: found 'a/b', needs up to 100 letters, digits, - _ and ., a letter or "
         "digit in front"]),
        (f"name: x\nstages:\n  p.q: {PRETRAIN_LINE}\n",
         ["3 stages.p.q: found 'p.q', needs up to 100 letters, digits, - and _, a letter in "
         "front"]),
        (f"name: x\nstages:\n  prepare-data: {PRETRAIN_LINE}\n",
         ["3 stages.prepare-data: this name is reserved for a preparation stage"]),
    ],
)  # fmt: skip
def test_a_wrong_top_level(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert told(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ("[0, 0]", "4 seeds[1]: names 0 twice"),
        ("[-1]", "4 seeds[0]: found -1, needs at least 0"),
        ("[0, 4294967296]", "4 seeds[1]: found 4294967296, needs less than 4,294,967,296"),
        ("[0.5]", "4 seeds[0]: found 0.5, needs a whole number"),
        ("3", "4 seeds: found 3, needs a list or a rule, such as [0, 1, 2]"),
        ("[]", "4 seeds: found [], needs at least one entry"),
        ("", "4 seeds: found nothing, needs a list or a rule"),
    ],
)
def test_wrong_seeds(tmp_path: Path, seeds: str, expected: str) -> None:
    text = f"name: x\nstages:\n  p: {PRETRAIN_LINE}\nseeds: {seeds}\n"
    assert told(tmp_path, text) == [expected]


def test_all_problems_at_once_each_once(tmp_path: Path) -> None:
    broken = PRETRAIN_LINE.replace("rope", "rop").replace("length: 64", "lenght: 64")
    text = (
        "nam: x\n"
        "seeds: [0, 0]\n"
        "stages:\n"
        f"  p: {broken}\n"
        f"  c: {PERPLEXITY_LINE.replace('from: p', 'from: q')}\n"
        "grid: {p.train.warmup: [0.1, 2], q.train.tokens: [1]}\n"
        "zip: {p.train.learning_rate: [1e-3, 2e-3], p.train.weight_decay: [0]}\n"
        "reports: {}\n"
    )
    found = [" ".join(line.split(": ")[:2]).split(";")[0] for line in told(tmp_path, text)]
    assert sorted(found) == [
        "1 nam unknown key 'nam'",
        "1 name is missing",
        "2 seeds[1] names 0 twice",
        "4 stages.p.data.lenght unknown option 'lenght' of data",
        "4 stages.p.embedding unknown embedding 'rop'",
        "5 stages.c.from no stage named 'q' in this file (allowed",
        "6 grid.p.train.warmup[1] found 2, needs at most 1",
        "6 grid.q.train.tokens matches nothing",
        "7 zip the lists must be equally long",
        "8 reports unknown key 'reports'",
    ]


@pytest.mark.parametrize(
    ("field", "value", "needs"),
    [
        ("train.learning_rate", [1e-3, 3e-3], "a number"),
        ("train.tokens", [1000, 2000], "a whole number"),
        ("model.num_layers", [1, 2], "a whole number"),
    ],
)
def test_several_values_of_a_stage_belong_under_grid(
    tmp_path: Path, field: str, value: list[float], needs: str
) -> None:
    section, name = field.split(".")
    pretrain = {**PRETRAIN, section: {**PRETRAIN[section], name: value}}
    [problem] = problems(tmp_path, {"name": "many", "stages": {"pretrain": pretrain}})
    way = f"; to compare several, write them under grid: {{pretrain.{field}: […]}}"
    assert problem.message == f"found {value}, needs {needs}{way}"


def test_a_wrong_grid_makes_nothing_else_missing(tmp_path: Path) -> None:
    """The axis that would have set the embedding is misspelt; that is the only problem."""
    text = (
        "name: x\nstages:\n"
        f"  pretrain: {PRETRAIN_LINE.replace(' embedding: rope,', '')}\n"
        "grid: {pretrian.embedding: [rope, nope]}\n"
    )
    assert told(tmp_path, text) == [
        "4 grid.pretrian.embedding: matches nothing: no stage 'pretrian'; did you mean "
        "'pretrain'? (allowed: pretrain)"
    ]


def test_a_link_to_a_file_is_the_file(tmp_path: Path) -> None:
    real = write(tmp_path / "real" / "sweep.yaml", BASE)
    link = tmp_path / "link.yaml"
    link.symlink_to(real)
    assert load_sweep(link).stages == load_sweep(real).stages
    assert load_sweep(str(link)).path == link


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
