"""The hours that the paper of FoPE prints (A.3), and a plan's: what heads of sweeps say of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shipped import ROOT

from fope_lab.cli import main

HEADS = {
    "figure1": "10, 20 and 100 hours for a training of the three sizes on four A6000;"
    " `plan --device a6000` estimates {}, {} and {}.",
    "table1": "4 hours for a training on four A6000; `plan --device a6000` estimates {}.",
}


@pytest.mark.parametrize("name", HEADS)
def test_the_heads_have_the_hours_that_a_plan_estimates(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ROOT / "fope" / f"{name}.yaml"
    main(["plan", str(file), "--store", str(tmp_path), "--device", "a6000", "--json"])
    stages = json.loads(capsys.readouterr().out)["stages"]
    trainings = [s for s in stages if s["kind"] in ("pretrain", "finetune")]
    hours = sorted({round(stage["seconds"] / 3600, 1) for stage in trainings})
    lines = (line.lstrip("# ") for line in file.read_text().splitlines() if line.startswith("#"))
    assert HEADS[name].format(*hours) in " ".join(lines)
