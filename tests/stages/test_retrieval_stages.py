"""The stages `needle` and `ruler`: what is wrong with a file that asks for them, and their cost."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_files import BASE, PRETRAIN_LINE, changed, load, of, told


def child(section: str) -> str:
    """A file with a pretraining and, on line 4, a child c with this section."""
    return f"name: x\nstages:\n  p: {PRETRAIN_LINE}\n  c: {{from: p, {section}}}\n"


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("kind: needle, lengths: [400, 100]",
         "lengths: the English prompt with key 77997 needs at least 253 tokens with "
         "this tokenizer, but length is 100; the symbolic form needs 12"),
        ("kind: needle, lengths: [64], form: symbolic, corpus: c4",
         "corpus: has no effect: the symbolic form has a filler of its own"),
        ("kind: ruler, lengths: [40], form: symbolic, tasks: [key-value]",
         "lengths: a key-value prompt with 4 statements needs at least 45 tokens, but length "
         "is 40"),
        ("kind: ruler, lengths: [640], form: symbolic, chains: 4, hops: 9",
         "hops: found 9, needs at most 5: the symbolic form has 26 variables"),
        ("kind: ruler, lengths: [640], queries: 3, keys: 2, tasks: [key-value]",
         "queries: found 3, needs at most 2, the number of keys"),
        ("kind: ruler, lengths: [2000], hops: 2, tasks: [key-value]",
         "hops: has no effect: variable-tracking is not among the tasks"),
    ],
)  # fmt: skip
def test_a_wrong_stage(tmp_path: Path, section: str, expected: str) -> None:
    assert told(tmp_path, child(section)) == [f"4 stages.c.{expected}"]


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    section = "kind: ruler, lengths: [640], form: symbolic, corpus: c4, tasks: [key-value], hops: 2"
    assert len(told(tmp_path, child(f"{section}, queries: 9"))) == 3


def test_tasks_to_train_on_are_checked(tmp_path: Path) -> None:
    data = "{length: 64, mix: [{task: key-value, queries: 5}, {task: passkey}]}"
    text = child("kind: passkey, lengths: [400]").replace("{corpus: c4, length: 64}", data)
    assert told(tmp_path, text) == [
        "3 stages.p.data.mix[0].queries: found 5, needs at most 4, the number of keys"
    ]


def test_what_is_read_is_known(tmp_path: Path) -> None:
    needle = {"kind": "needle", "from": "pretrain", "lengths": [400, 500], "trials": 3}
    ruler = {"kind": "ruler", "from": "pretrain", "lengths": [2000], "trials": 7}
    content = changed(BASE, {"stages.n": needle, "stages.r": ruler})
    sweep = load(tmp_path, content)
    [n], [r] = of(sweep, "n"), of(sweep, "r")
    assert list(n.spec.forward_passes()) == [(400, 33), (500, 33)]
    assert list(r.spec.forward_passes()) == [(2000, 14)]
