"""The work of one of several workers, from which the time of a stage is estimated."""

from __future__ import annotations

from pathlib import Path

from fope_lab.planning.forecast import Workload, workload_of
from fope_lab.sweep import load_sweep

SWEEP = """
name: shared
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: rope
    data: {corpus: python-docs, length: 32}
    train: {tokens: 10240, batch_tokens: 512, learning_rate: 1e-3}
  passkey: {kind: passkey, from: pretrain, lengths: [32], form: symbolic, trials: 96,
            batch_tokens: 1024, resources: {workers: WORKERS}}
"""


def of_evaluation(folder: Path, workers: int) -> Workload:
    (folder / "shared.yaml").write_text(SWEEP.replace("WORKERS", str(workers)))
    [stage] = [one for one in load_sweep(folder / "shared.yaml").stages if one.kind == "passkey"]
    return workload_of(stage)


def test_a_worker_of_an_evaluation_has_its_share(tmp_path: Path) -> None:
    alone, pair = of_evaluation(tmp_path, 1), of_evaluation(tmp_path, 2)
    assert alone.tokens == 96 * 32
    assert pair.tokens == 96 * 16
    assert alone.flops is not None
    assert pair.flops == alone.flops / 2


def test_work_has_the_width_of_the_model(tmp_path: Path) -> None:
    assert of_evaluation(tmp_path, 1).width == 32
