"""A wrong field at the top of a sweep file is an error beside right sections, and no crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from fope_lab.sweep import SweepError, load_sweep

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
