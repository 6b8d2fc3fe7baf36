"""PosGen in sweep files: what is wrong with a section, what a stage reads, the shipped sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_files import load, of, told

from fope_lab.evaluation.posgen import PosGen
from fope_lab.stages.training import Pretrain
from fope_lab.sweep import load_sweep

SWEEPS = Path(__file__).parents[2] / "sweeps"
FILE = """name: x
stages:
  p: {{kind: pretrain, model: tiny, embedding: rope, data: {{task: posgen, {data}}},
      train: {{tokens: 1e5, batch_tokens: 2048, learning_rate: 1e-3}}}}
  e: {{kind: posgen, from: p, {evaluation}}}
"""


def file(data: str = "subtask: cot, length: 64", evaluation: str = "subtask: cot") -> str:
    return FILE.format(data=data, evaluation=evaluation)


@pytest.mark.parametrize(
    ("evaluation", "expected"),
    [
        ("length: 64", ["subtask: is missing"]),
        (
            "subtask: cot, length: 4, count: 9000",
            [
                "count: found 9000, needs at most 8352: of the 83521 beginnings of j + k = 4 "
                "tokens below 17, no more belong to test",
                "length: found 4, needs more than the j + k = 4 given tokens",
            ],
        ),
        (
            "subtask: cot, modulus: 3, official_leaky: true",
            ["official_leaky: needs j + k = 4 different tokens, but modulus 3 has fewer"],
        ),
    ],
)
def test_wrong_evaluations(tmp_path: Path, evaluation: str, expected: list[str]) -> None:
    found = told(tmp_path, file(evaluation=evaluation))
    assert sorted(found) == sorted(f"5 stages.e.{line}" for line in expected)


def test_another_posgen_than_the_parents_is_refused(tmp_path: Path) -> None:
    content = file(evaluation="subtask: recursive, modulus: 5, length: 64, count: 50")
    assert sorted(told(tmp_path, content)) == [
        "5 stages.e.length: found 64, needs more than the 64 tokens that the model is trained at,"
        " or else no token is beyond them",
        "5 stages.e.modulus: found 5, and the model is trained with 17",
        "5 stages.e.subtask: found recursive, and the model is trained with cot",
    ]


def test_a_model_whose_embedding_was_exchanged_was_trained_before(tmp_path: Path) -> None:
    yarn = "embedding: {type: yarn, factor: 2}"
    told_of = "length: found 64, needs more than the 64 tokens that the model is trained at"
    exchanged = f"  x: {{kind: extend, from: p, train: none, {yarn}}}\n"
    content = file(evaluation="subtask: cot, length: 64, count: 50")
    [found] = told(tmp_path, content.replace("from: p, ", "from: x, ") + exchanged)
    assert told_of in found
    (tmp_path / "other.yaml").write_text(file(evaluation="subtask: cot, length: 65") + exchanged)
    [found] = told(tmp_path, content.replace("from: p, ", "from: other.yaml#x, "))
    assert told_of in found
    [found] = told(tmp_path, content.replace("from: p, ", f"from: p, {yarn}, "))
    assert told_of in found


def test_tokens_that_the_model_has_not_are_refused(tmp_path: Path) -> None:
    content = file(evaluation="subtask: cot, modulus: 300, k: 1")
    content = content.replace("task: posgen, subtask: cot", "corpus: python-docs")
    assert told(tmp_path, content) == [
        "5 stages.e.modulus: found 300, needs at most the 272 tokens of the model"
    ]


def test_a_stage_reads_each_sequence_once(tmp_path: Path) -> None:
    evaluation = "subtask: cot, length: 128, count: 70"
    [stage] = of(load(tmp_path, file(evaluation=evaluation)), "e")
    assert stage.cost.tokens == 128 * 70


@pytest.mark.parametrize("name", ["resonance/table1.yaml", "mini/resonance-table1.yaml"])
def test_the_shipped_sweeps_read_what_they_train(name: str) -> None:
    sweep = load_sweep(SWEEPS / name)
    trained = {stage.key: stage.spec for stage in sweep.stages if stage.kind == "pretrain"}
    read = [stage for stage in sweep.stages if stage.kind == "posgen"]
    assert len(read) == len(trained) > 20
    for stage in read:
        parent = trained[stage.parents["from"]]
        assert isinstance(stage.spec, PosGen)
        assert isinstance(parent, Pretrain)
        [source] = parent.data.mix
        assert getattr(source.task, "sequence_set", None) == stage.spec.sequence_set
        assert stage.spec.length == 4 * parent.data.length
