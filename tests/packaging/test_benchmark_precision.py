"""benchmarks/precision.py sets the precision of every training, and changes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks.precision import SWEEPS, in_precision
from fope_lab.stages.training import TrainingConfig
from fope_lab.sweep import load_sweep

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_training_has_the_precision(sweep: str, tmp_path: Path) -> None:
    shipped, copy = ROOT / sweep, tmp_path / "copy.yaml"
    written = yaml.safe_load(shipped.read_text(encoding="utf-8"))

    def stages(precision: str) -> dict[str, object]:
        copy.write_text(yaml.safe_dump(in_precision(written, precision)), encoding="utf-8")
        return {stage.key: stage.spec for stage in load_sweep(copy).stages}

    wide, narrow = stages("float32"), stages("bfloat16")
    assert wide.keys() == {stage.key for stage in load_sweep(shipped).stages}
    trainings = [spec for spec in narrow.values() if isinstance(spec, TrainingConfig)]
    assert trainings
    assert all(spec.train.precision == "bfloat16" for spec in trainings)
