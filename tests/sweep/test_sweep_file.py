"""The top level of a sweep file, and that all problems are told at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_files import BASE, PRETRAIN, PRETRAIN_LINE, changed, load, of, problems, told, write

from fope_lab.sweep import SweepError, load_sweep

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


def test_relative_files_start_from_the_sweep_file(tmp_path: Path) -> None:
    write(tmp_path / "texts" / "a.txt", "some text\n\nand more")
    content = changed(BASE, {"stages.perplexity.corpus": {"files": "texts/*.txt"}})
    [stage] = of(load(tmp_path, content), "perplexity")
    assert stage.config["corpus"]["files"] == [str(tmp_path / "texts" / "a.txt")]


SWEEP = """
name: one
prepare: {resources: {cpus: 2}}
report: {claims: ["passkey@64: rope > nope"], learnt: 0.9}
stages:
  pretrain:
    kind: pretrain
    model: tiny
    embedding: rope
    data: {corpus: python-docs, length: 64}
    train: {tokens: 640, batch_tokens: 640, learning_rate: 1e-3}
"""


@pytest.mark.parametrize(
    ("line", "field"),
    [("papre: fope/table2", "papre"), ("paper: fope/tabel2", "paper"), ("seeds: [-1]", "seeds[0]")],
)
def test_the_wrong_field_alone_is_named(tmp_path: Path, line: str, field: str) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(f"{SWEEP}{line}\n")
    with pytest.raises(SweepError) as caught:
        load_sweep(path)
    [problem] = caught.value.problems
    assert problem.field == field
    assert problem.line == len(SWEEP.splitlines()) + 1
