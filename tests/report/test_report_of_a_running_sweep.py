"""`fope-lab report` while drivers are at work: what is half written is not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_samples import finish, result, write_plan

from fope_lab.cli import main
from fope_lab.store import Store
from fope_lab.sweep.graph import Stage

CHANGES = {"seeds": [0], "grid": {"pretrain.embedding": ["rope", "nope"]}}
PASSKEY, PERPLEXITY = "passkey[embedding=rope,seed=0]", "perplexity[embedding=rope,seed=0]"
TRAINING = "pretrain[embedding=nope,seed=0]"


def test_what_is_finished_is_shown_and_the_rest_is_waited_for(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(tmp_path, CHANGES)
    finish(plan, store, skip=[PASSKEY, TRAINING])
    stages: dict[str, Stage] = {stage.label: stage for stage in plan.sweep.stages}
    trained, asked = stages[TRAINING], stages[PASSKEY]
    training = store.folder(trained.kind, trained.key)
    attempt = training.begin("driver", {"config": trained.config})
    for step in (10, 20):
        attempt.writer.log(step, {"loss": 3.0})
    segment = next(training.paths.metrics.glob("*.jsonl"))
    with segment.open("a") as file:
        file.write('{"step": 30, "time": 1, "val')  # as a write that is not finished
    training.paths.progress.write_text('{"token": 1, "st')
    evaluation = store.folder(asked.kind, asked.key)
    other = evaluation.begin("driver", {"config": asked.config})
    (evaluation.path / ".result.json.0a.tmp").write_text('{"format": 2, "metr')
    (evaluation.path / "result.json").write_text('{"format": 2, "metr')
    try:
        file, place = str(plan.sweep.path), str(store.root)
        assert main(["report", file, "--store", place, "--json"]) == 0
        content = json.loads(capsys.readouterr().out)
        states = {stage["name"]: stage["state"] for stage in content["stages"]}
        assert (states[TRAINING], states[PASSKEY], states[PERPLEXITY]) == (
            "running",
            "running",
            "done",
        )
        assert {c["stage"] for c in content["cells"] if c["n"]} >= {"pretrain", "perplexity"}
        assert main(["report", file, "--store", place]) == 0
        first = capsys.readouterr().out
        assert "running" in first
        assert not first.rstrip().endswith("(unchanged)")
        assert main(["report", file, "--store", place]) == 0
        assert capsys.readouterr().out.rstrip().endswith("(unchanged)")
        other.writer.log(32, {"passkey_accuracy_by_length": 0.5})
        other.finish(result(form="symbolic"))
        assert main(["report", file, "--store", place]) == 0
        assert not capsys.readouterr().out.rstrip().endswith("(unchanged)")
    finally:
        attempt.release()
