"""What stages say that they measure is what they log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from measured import measured
from sections import read_section

from fope_lab.evaluation.context import Context
from fope_lab.stages.base import FILE_KINDS, StageConfig, load_function
from fope_lab.stages.metric import Measurement
from fope_lab.stages.training import Pretrain
from fope_lab.store.root import Store

LENGTHS = {"lengths": [16, 32]}
SECTIONS: list[dict[str, Any]] = [
    {"kind": "perplexity", "corpus": "python-docs", "tokens": 300, **LENGTHS},
    {
        "kind": "perplexity",
        "corpus": "python-docs",
        "over": "c4",
        "tokens": 300,
        "position_buckets": 5,
        **LENGTHS,
    },
    {"kind": "passkey", "form": "symbolic", "trials": 2, "lengths": [64, 32]},
    {"kind": "needle", "form": "symbolic", "trials": 1, "depths": 2, "lengths": [64, 32]},
    {"kind": "ruler", "form": "symbolic", "trials": 1, "lengths": [128, 96]},
    {
        "kind": "ruler",
        "form": "symbolic",
        "trials": 1,
        "tasks": ["variable-tracking"],
        "lengths": [96],
    },
    {"kind": "posgen", "subtask": "cot", "length": 40, "count": 3},
]


def section(options: dict[str, Any]) -> StageConfig:
    return FILE_KINDS.parse({"from": "m", **options})


def points(stage: StageConfig) -> set[tuple[str, int | None]]:
    """(metric, x) of all that a stage says it measures."""
    return {
        (measure.name, x)
        for measure in stage.metrics()
        for x in (measure.xs if measure.xs is not None else [None])
    }


@pytest.mark.parametrize("options", SECTIONS, ids=lambda options: str(options["kind"]))
def test_a_stage_logs_what_it_says(
    parents: dict[str, Path], tmp_path: Path, options: dict[str, Any]
) -> None:
    stage = section(options)
    run = load_function(stage.entry_point)
    folder = Store(tmp_path).folder(stage.kind, "key")
    with folder.begin("test", {}) as attempt:
        attempt.finish(run(stage, attempt.writer, {**parents, "data.1": parents["data.0"]}))
    logged = {
        (name, row.step if "_by_" in name else None)
        for row in folder.rows()
        for name in row.values
        if not name.endswith("_stderr")
    }
    assert logged == points(stage)
    result = folder.result()
    assert result is not None
    assert measured(result).keys() == logged


def test_what_tells_that_a_task_is_learned_is_measured_too() -> None:
    for options in SECTIONS:
        metrics = list(section(options).metrics())
        for measure in metrics:
            assert measure.mastery in {None, *(one.name for one in metrics)}
        accuracies = {one.name for one in metrics if "accuracy" in one.name}
        assert {one.name for one in metrics if one.mastery} == accuracies - {"posgen_accuracy"}


def test_tasks_are_called_by_their_names() -> None:
    stage = section({"kind": "downstream", "tasks": ["arc_easy", "trivia_qa_wiki", "sciq"]})
    assert {one.short_name: one.name for one in stage.metrics()} == {
        "arc_easy": "arc_easy_accuracy",
        "arc_easy_loss": "arc_easy_loss",
        "trivia_qa_wiki": "trivia_qa_wiki_loss",  # nothing to choose from
        "sciq": "sciq_accuracy",
        "sciq_loss": "sciq_loss",
        "downstream": "downstream_accuracy",
        "downstream_loss": "downstream_loss",
    }
    leval = section({"kind": "leval", "tasks": ["gsm100", "sci_fi"], "revision": "a" * 40})
    assert [(one.short_name, one.name) for one in leval.metrics()] == [
        ("gsm100", "leval_gsm100"),
        ("sci_fi", "leval_sci_fi"),
        ("leval", "leval_average"),
    ]


def test_a_training_measures_its_losses() -> None:
    train = {"tokens": 640, "batch_tokens": 64, "learning_rate": 1e-3}

    def names(**options: Any) -> list[str]:
        stage = read_section(
            Pretrain,
            {
                "kind": "pretrain",
                "model": {"scale": "tiny"},
                "embedding": "rope",
                "data": {"corpus": "python-docs", "length": 64},
                "train": {**train, **options},
            },
        )
        return [measure.name for measure in stage.metrics()]

    assert names() == ["loss"]
    assert names(validate_every=5) == ["loss", "validation_loss", "least_validation_loss"]


def test_a_metric_that_is_not_declared_is_an_error(tmp_path: Path) -> None:
    stage = section({"kind": "passkey", "lengths": [64]})
    folder = Store(tmp_path).folder(stage.kind, "key")
    with folder.begin("test", {}) as attempt:
        context = Context(stage, attempt.writer, {})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"Passkey\.metrics\(\) does not declare 'passkey_"):
            context.log(Measurement(name="passkey_loss", value=1.0))


@pytest.mark.parametrize(
    ("xs", "message"),
    [
        ((64, 128), "log takes the measurements of one point, found 64, 128"),
        ((), "log takes the measurements of one point, found none"),
        ((96,), "passkey_accuracy_by_length is measured at 96, and declared at 64, 128"),
        ((None,), "is measured at None"),
    ],
)
def test_a_row_has_one_declared_point(
    tmp_path: Path, xs: tuple[int | None, ...], message: str
) -> None:
    stage = section({"kind": "passkey", "lengths": [64, 128]})
    with Store(tmp_path).folder(stage.kind, "key").begin("test", {}) as attempt:
        context = Context(stage, attempt.writer, {})  # type: ignore[arg-type]
        measured = [Measurement(name="passkey_accuracy_by_length", x=x, value=1.0) for x in xs]
        with pytest.raises(ValueError, match=message):
            context.log(*measured)
