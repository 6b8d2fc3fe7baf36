"""What a selection refers to is kept, and a model card tells of the training that it chose."""

from __future__ import annotations

import pytest
from kept_sweep import SWEEP, Scene

from fope_lab.cli import main
from fope_lab.cli.housekeeping.model_origin import origin_of
from fope_lab.stages.internal import Select
from fope_lab.stages.metric import Measurement, ResultRecord
from trainers.models import select as run

RATES = {"0.001": 2.0, "0.002": 1.0, "0.004": 3.0}
"""The validation loss of each learning rate."""
CHOSEN, CHILD = "select[pretrain[seed=0]]", "passkey[seed=0]"


def text(*rates: str) -> str:
    head, _, _ = SWEEP.partition("grid:")
    head = head.replace("{task: passkey, length: 32}", "{corpus: python-docs, length: 32}")
    head = head.replace(
        "1e-2}", "1e-2, validate_every: 2}\n    select: {over: train.learning_rate}"
    )
    return f"{head}grid:\n  pretrain.train.learning_rate: [{', '.join(rates)}]\n"


def candidate(rate: str) -> str:
    return f"pretrain[train.learning_rate={rate},seed=0]"


def finish(scene: Scene, *rates: str) -> None:
    """Finish every stage with a model."""
    for rate in rates:
        folder = scene.folder(candidate(rate))
        if not folder.is_done():
            with folder.begin("driver", scene.request(candidate(rate))) as attempt:
                attempt.writer.save_checkpoint(
                    4, lambda path, rate=rate: (path / "model").write_text(rate) and None
                )
                loss = Measurement(name="validation_loss", value=RATES[rate])
                attempt.finish(ResultRecord(metrics=(loss,)).as_json())
    stage, folder = scene.stage(CHOSEN), scene.folder(CHOSEN)
    assert isinstance(stage.spec, Select)
    parents = {}
    for role, key in stage.parents.items():
        checkpoint = scene.store.folder("pretrain", key).final_checkpoint()
        assert checkpoint is not None
        parents[role] = checkpoint.path
    with folder.begin("driver", scene.request(CHOSEN)) as attempt:
        attempt.finish(run(stage.spec, attempt.writer, parents))
    scene.save(CHILD, finish=True)


@pytest.fixture
def selected(scene: Scene) -> Scene:
    scene.write(text(*RATES))
    scene.record()
    finish(scene, *RATES)
    return scene


def test_all_candidates_of_a_chosen_model_are_kept(
    selected: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["store", "prune", *selected.options, "--yes"]
    assert main(options) == 0
    assert "nothing to remove" in capsys.readouterr().out
    before = {label: selected.folder(label) for label in (CHOSEN, CHILD, candidate("0.004"))}
    selected.write(text("0.001", "0.002"))
    selected.record()
    finish(selected, "0.001", "0.002")
    assert main(options) == 0
    assert not any(folder.path.exists() for folder in before.values())
    for label in (CHOSEN, CHILD, candidate("0.001"), candidate("0.002")):
        assert selected.folder(label).is_done()
    assert main(["store", "verify", *selected.options]) == 0


def test_the_card_tells_of_the_training_that_was_chosen(selected: Scene) -> None:
    origin = origin_of(selected.folder(CHOSEN).path, selected.store)
    assert [facts.label for facts in origin.trainings] == [candidate("0.002"), CHOSEN]
    assert origin.trainings[0].settings["learning rate"] == "0.002"
