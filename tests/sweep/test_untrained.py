"""Extension without training in a sweep file: `train: none`, and `embedding` of an evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweep_files import BASE, PRETRAIN, changed, keys, load, of, told

from fope_lab.planning.estimate import estimate_plans
from fope_lab.sweep import plan
from fope_lab.sweep.plan import mechanism_note

YARN = {"type": "yarn", "factor": 4}
EXTEND = {"kind": "extend", "from": "pretrain", "train": "none", "embedding": YARN}
PERPLEXITY = BASE["stages"]["perplexity"]
TRAIN = BASE["stages"]["extend"]["train"]


def sweep(**stages: Any) -> dict[str, Any]:
    return {"name": "x", "stages": {"pretrain": PRETRAIN, **stages}}


def test_the_model_is_the_parents_with_another_embedding(tmp_path: Path) -> None:
    further = {**BASE["stages"]["finetune"], "from": "extend"}
    made = load(tmp_path, {**sweep(extend=EXTEND, further=further), "seeds": [0, 7]})
    for stage in of(made, "extend"):
        [parent] = [p for p in of(made, "pretrain") if p.seed == stage.seed]
        assert stage.parents == {"from": parent.key}
        assert stage.config["seed"] == stage.seed
        assert stage.model_spec is not None
        assert parent.model_spec is not None
        assert stage.embedding == "yarn(factor=4)"
        assert stage.model_spec.model == parent.model_spec.model
        assert stage.model_spec.train_length == stage.model_spec.last_trained_length == 64
        assert (stage.cost.tokens, stage.cost.flops) == (0, 0)
    assert [stage.embedding for stage in of(made, "further")] == ["yarn(factor=4)"] * 2


def test_an_evaluation_with_an_embedding_is_one_of_the_extension(tmp_path: Path) -> None:
    """Both ways of saying it are the same stages, under the same keys."""
    passkey = {**BASE["stages"]["passkey"], "from": "pretrain"}
    short = load(
        tmp_path,
        sweep(perplexity={**PERPLEXITY, "embedding": YARN}, passkey={**passkey, "embedding": YARN}),
    )
    long = load(
        tmp_path,
        sweep(
            extend=EXTEND,
            perplexity={**PERPLEXITY, "from": "extend"},
            passkey={**passkey, "from": "extend"},
        ),
    )
    assert {stage.key for stage in short.stages} == {stage.key for stage in long.stages}
    label = "swap-embedding[yarn(factor=4),pretrain[seed=0]]"
    assert keys(short)[label] == keys(long)["extend[seed=0]"]


def test_the_models_own_embedding_is_no_stage(tmp_path: Path) -> None:
    plain = load(tmp_path, sweep(perplexity=PERPLEXITY))
    own: tuple[Any, ...] = (None, "rope", {"type": "rotary", "base": 1e4})
    for embedding in own:
        made = load(tmp_path, sweep(perplexity={**PERPLEXITY, "embedding": embedding}))
        assert keys(made) == keys(plain)


def test_an_axis_over_an_evaluations_embedding(tmp_path: Path) -> None:
    grid = {"perplexity.embedding": [None, YARN, "alibi"]}
    made = load(tmp_path, {**sweep(perplexity=PERPLEXITY), "grid": grid})
    found = {stage.label: stage.embedding for stage in of(made, "perplexity")}
    assert found == {
        "perplexity[embedding=own,seed=0]": "rope",
        "perplexity[embedding=yarn(factor=4),seed=0]": "yarn(factor=4)",
        "perplexity[embedding=alibi,seed=0]": "alibi",
    }
    assert len(of(made, "swap-embedding")) == 2
    assert (mechanism_note(made) or "").startswith("swap-embedding[alibi,pretrain[seed=0]]: ")
    assert mechanism_note(load(tmp_path, sweep(extend=EXTEND))) is None


def test_a_claim_names_the_models_own_embedding(tmp_path: Path) -> None:
    """It is `own`, as in the names of stages, for every model."""
    content = {
        **sweep(perplexity=PERPLEXITY),
        "grid": {
            "pretrain.embedding": ["rope", "p-rope"],
            "perplexity.embedding": [None, {**YARN, "factor": 2}],
        },
    }
    for claim in (
        "perplexity@64: yarn(factor=2) < own",
        "perplexity@64 where perplexity.embedding=own: rope < p-rope",
    ):
        assert load(tmp_path, {**content, "report": {"claims": [claim]}}).report.claims == (claim,)
    wrong = {"claims": ["perplexity@64: yarn < none"]}
    [found] = told(tmp_path, {**content, "report": wrong})
    assert "none is not a value of perplexity.embedding (has: own, yarn(factor=2))" in found


def test_an_axis_over_training_and_none(tmp_path: Path) -> None:
    """Data and resources of the section are those of the points that train."""
    extend = {**EXTEND, "data": {"corpus": "c4", "length": 128}, "resources": {"gpus": 1}}
    grid = {"extend.train": ["none", TRAIN]}
    made = load(tmp_path, {**sweep(extend=extend), "grid": grid})
    assert [stage.kind for stage in of(made, "extend")] == ["swap-embedding", "extend"]
    assert [stage.spec.resources.gpus for stage in of(made, "extend")] == [0, 1]
    axes = {**grid, "extend.data": [None, extend["data"]]}
    zipped = load(tmp_path, {**sweep(extend=EXTEND), "zip": axes})
    assert {stage.key for stage in zipped.stages} == {stage.key for stage in made.stages}


def test_a_plan_expects_next_to_no_time(tmp_path: Path) -> None:
    estimate = estimate_plans([plan(load(tmp_path, sweep(extend=EXTEND)))])
    [stage] = [stage for stage in estimate.stages if stage.section == "extend"]
    forecast = estimate.forecasts[stage.key]
    assert forecast.seconds == 2
    assert "reads nothing" in forecast.source


LEARNED = "has 396 learned parameters, which the model with rope does not have"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"embedding": ...}, "embedding: is missing: train: none needs it"),
        ({"embedding": "fire"}, f"embedding: fire {LEARNED}"),
        ({"embedding": {"type": "yarn", "factor": 1}}, "changes no frequency"),
        ({"data": {"corpus": "c4", "length": 128}}, "data: has no effect: train is none"),
        ({"resources": {"gpus": 1}}, "resources.gpus: found 1, needs 0"),
        ({"seed": 1}, "seed: the seed is that of the model it starts from"),
        ({"train": "non"}, "train: found 'non', needs a mapping; train: none extends without"),
        ({"train": None}, "train: found nothing, needs a mapping; train: none extends without"),
        ({"train": ...}, "train: is missing, needs a mapping of its settings; train: none"),
        ({"train": {**TRAIN, "tokens": 0}}, "needs at least 1; train: none extends without"),
        ({"kind": "finetune"}, "found 'none', needs a mapping; only a stage of kind extend goes"),
        ({"kind": "perplexity", "lengths": [8], "corpus": "c4"}, "unknown key 'train'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    section = {name: v for name, v in (EXTEND | changes).items() if v is not ...}
    assert any(expected in problem for problem in told(tmp_path, sweep(extend=section)))


def test_what_an_evaluation_can_not_have_in_its_model(tmp_path: Path) -> None:
    [found] = told(tmp_path, sweep(perplexity={**PERPLEXITY, "embedding": "fire"}))
    assert found.startswith(f"5 stages.perplexity.embedding: fire {LEARNED}")
    figure = {"kind": "analysis", "analysis": "decay", "embedding": "rope"}
    assert "has no effect: decay looks at no model" in told(tmp_path, sweep(figure=figure))[0]
    axis = {"perplexity.embedding": ["fire", YARN]}
    [found] = told(tmp_path, {**sweep(perplexity=PERPLEXITY), "grid": axis})
    assert "grid.perplexity.embedding[0]: fire" in found


def test_learned_parameters_stay_where_the_embedding_has_the_same(tmp_path: Path) -> None:
    fope = {"type": "fope", "learned": True, "base": 1e4}
    content = changed(
        sweep(extend={**EXTEND, "embedding": fope}), {"stages.pretrain.embedding": fope}
    )
    assert of(load(tmp_path, content), "extend")
    content = changed(content, {"stages.extend.embedding": {**fope, "base": 3e4}})
    assert "learned parameters" in " ".join(told(tmp_path, content))
