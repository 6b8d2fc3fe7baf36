"""stage.yaml records which stages a model went through."""

from __future__ import annotations

from pathlib import Path

from fope_lab.orchestration.trial import Order, run_until_ended
from fope_lab.store.folder import StageFolder
from fope_lab.store.lineage import lineage_of
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep

KINDS = ["pretrain", "select", "extend", "swap-embedding"]
SWEEP = """
name: lineage
stages:
  small:
    kind: pretrain
    model: {num_layers: 1, num_heads: 1, head_dim: 8}
    embedding: rope
    data: {task: posgen, subtask: cot, length: 24}
    train: {tokens: 192, batch_tokens: 96, learning_rate: 1e-2, validate_every: 1,
      validation_tokens: 96}
    select: {over: train.learning_rate, by: validation_loss}
  longer: {kind: extend, from: small, embedding: {type: pi, factor: 2},
    data: {task: posgen, subtask: cot, length: 48},
    train: {tokens: 192, batch_tokens: 96, learning_rate: 1e-3}}
  posgen:
    {kind: posgen, from: longer, subtask: cot, length: 96, count: 8,
      embedding: {type: pi, factor: 4}}
grid: {small.train.learning_rate: [1e-2, 1e-3]}
"""


def test_a_model_that_was_selected_extended_and_given_another_embedding(tmp_path: Path) -> None:
    file, store = tmp_path / "sweep.yaml", Store.create(tmp_path / "store")
    file.write_text(SWEEP)
    stages = {stage.key: stage for stage in load_sweep(file).stages}
    for key in stages:
        state = run_until_ended(Order(key, stages, "t"), store)
        assert state.is_done, state.reason
    [last] = (stage for stage in stages.values() if stage.section == "posgen")
    folder = store.folder(last.kind, last.key)
    before = folder.request()["lineage"]
    assert [path.partition("/")[0] for path in before] == KINDS
    assert [each.path for each in lineage_of(folder)][:-1] == [store.root / p for p in before]
    assert all(StageFolder(store.root / path).is_done() for path in before)
    assert folder.result()["recorded"]["trained_on_posgen"], "the evaluation reads the lineage"
