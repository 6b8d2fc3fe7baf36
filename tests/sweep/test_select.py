"""`select` on a training stage: its stages in the graph, their keys, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweep_files import BASE, PRETRAIN, changed, keys, load, of, told, write

from fope_lab.planning.estimate import estimate_plans
from fope_lab.store.state import NOT_STARTED, StageState, Status
from fope_lab.sweep import load_sweep, plan
from fope_lab.sweep.plan import block_descendants

RATE = "pretrain.train.learning_rate"
TRAIN = {**PRETRAIN["train"], "validate_every": 5, "validation_part": "first-half"}
RULE = {"over": "train.learning_rate"}
PERPLEXITY = {**BASE["stages"]["perplexity"], "part": "second-half"}
SWEEP: dict[str, Any] = {
    "name": "x",
    "seeds": [0, 7],
    "stages": {
        "pretrain": {**PRETRAIN, "train": TRAIN, "select": RULE},
        "extend": BASE["stages"]["extend"],
        "perplexity": PERPLEXITY,
        "passkey": BASE["stages"]["passkey"],
    },
    "grid": {"pretrain.embedding": ["rope", "nope"], RATE: [1e-3, 2e-3, 4e-3]},
}


def test_children_start_from_one_model_for_each_of_the_other_axes(tmp_path: Path) -> None:
    made = load(tmp_path, SWEEP)
    candidates = of(made, "pretrain")
    assert len(candidates) == 2 * 3 * 2
    assert [stage.label for stage in of(made, "select")] == [
        f"select[pretrain[embedding={name},seed={seed}]]"
        for name in ("rope", "nope")
        for seed in (0, 7)
    ]
    chosen = {stage.key: stage for stage in of(made, "select")}
    for section in ("extend", "perplexity"):
        for child in of(made, section):
            parent = chosen[child.parents["from"]]
            assert child.axes == parent.axes == {"pretrain.embedding": child.embedding}
            assert child.seed == parent.seed
    assert len(of(made, "passkey")) == len(of(made, "perplexity")) == 4


def test_one_value_is_chosen_for_all_seeds(tmp_path: Path) -> None:
    """The selection of a seed depends on the candidates of every seed of its embedding."""
    made = load(tmp_path, SWEEP)
    for chosen in of(made, "select"):
        own = [s for s in of(made, "pretrain") if s.embedding == chosen.embedding]
        assert sorted(chosen.parents.values()) == sorted(stage.key for stage in own)
        for (i, rate), seed in (
            (pair, s) for pair in enumerate([1e-3, 2e-3, 4e-3]) for s in (0, 7)
        ):
            [role] = [
                role
                for stage in own
                for role, key in chosen.parents.items()
                if key == stage.key and stage.seed == seed and stage.axes[RATE] == rate
            ]
            assert role == f"candidate.{i}.{seed}"


def test_candidates_have_the_keys_that_they_have_without_a_selection(tmp_path: Path) -> None:
    made = load(tmp_path, SWEEP)
    plain = load(tmp_path, changed(SWEEP, {"stages.pretrain": {**PRETRAIN, "train": TRAIN}}))
    assert {s.key for s in of(made, "pretrain")} == {s.key for s in of(plain, "pretrain")}
    assert [s.config for s in of(made, "pretrain")] == [s.config for s in of(plain, "pretrain")]


@pytest.mark.parametrize(
    "change",
    [
        {"stages.pretrain.select": {**RULE, "by": "least_validation_loss"}},
        {f"grid.{RATE}".replace(".", "|", 1): [1e-3, 2e-3]},
        {"seeds": [0, 7, 8]},
        {"stages.pretrain.train": {**TRAIN, "select": "best", "tokens": 200_000}},
    ],
    ids=["rule", "candidates", "seeds", "training"],
)
def test_the_key_follows_from_the_rule_and_all_candidates(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    best = changed(SWEEP, {"stages.pretrain.train": {**TRAIN, "select": "best"}})
    before = keys(load(tmp_path, best))
    content = changed(best, {k: v for k, v in change.items() if "|" not in k})
    content["grid"] |= {k.partition("|")[2]: v for k, v in change.items() if "|" in k}
    after = keys(load(tmp_path, content))
    names = [name for name in before if name.startswith(("select", "extend", "perplexity"))]
    assert all(before[name] != after[name] for name in names)


def test_other_files_and_other_stages_start_from_the_chosen_model(tmp_path: Path) -> None:
    write(tmp_path / "first.yaml", SWEEP)
    first = load_sweep(tmp_path / "first.yaml")
    second = load(
        tmp_path,
        {
            "name": "y",
            "seeds": [0, 7],
            "stages": {"perplexity": {**PERPLEXITY, "from": "first.yaml#pretrain"}},
            "grid": {"pretrain.embedding": ["rope", "nope"]},
        },
    )
    found = {stage.key for stage in of(second, "perplexity")}
    assert found == {stage.key for stage in of(first, "perplexity")}


def test_a_selected_stage_may_start_from_a_selected_one(tmp_path: Path) -> None:
    extend = {**BASE["stages"]["extend"], "select": RULE}
    extend["train"] = {**extend["train"], "validate_every": 5}
    content = changed(SWEEP, {"stages.extend": extend})
    content["grid"]["extend.train.learning_rate"] = [1e-4, 2e-4]
    made = load(tmp_path, content)
    assert len(of(made, "extend")) == 2 * 2 * 2
    assert len(of(made, "select")) == 2 * 2 * 2
    assert len(of(made, "passkey")) == 2 * 2
    assert {tuple(stage.axes) for stage in of(made, "passkey")} == {("pretrain.embedding",)}


def test_a_plan_says_what_the_selection_costs(tmp_path: Path) -> None:
    estimate = estimate_plans([plan(load(tmp_path, SWEEP))])
    rows = {row["name"]: row for row in estimate.as_json()["stages"]}
    row = rows["select[pretrain[embedding=rope,seed=0]]"]
    assert (row["kind"], row["state"], row["tokens"], row["flops"]) == ("select", "run", 0, 0)
    assert row["reason"].endswith("; after pretrain; best of 3 by validation_loss, over 2 seeds")
    tokens = sum(stage.cost.tokens or 0 for stage in of(estimate.plans[0].sweep, "pretrain"))
    assert estimate.totals()["tokens"] > tokens


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({**RULE, "by": "validation_los"},
         "stages.pretrain.select.by: found 'validation_los'; did you mean"
         " 'validation_loss'? (allowed: validation_loss, least_validation_loss)"),
        ({"over": "train.learning_rat"},
         "stages.pretrain.select.over: found 'train.learning_rat', which is no axis of pretrain"
         " that sets a field of train; did you mean 'train.learning_rate'? (allowed:"
         " train.learning_rate)"),
        ({"over": "embedding"},
         "stages.pretrain.select.over: found 'embedding', which is no axis of pretrain that sets"
         " a field of train (allowed: train.learning_rate)"),
        ({**RULE, "by": "least_validation_loss"},
         "stages.pretrain.select.by: found least_validation_loss, but the training leaves the"
         " last model, needs validation_loss, or best for train.select"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_one_clear_error(
    tmp_path: Path, rule: dict[str, Any], expected: str
) -> None:
    [found] = told(tmp_path, changed(SWEEP, {"stages.pretrain.select": rule}))
    assert expected in found


def test_an_axis_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    [found] = told(tmp_path, {**SWEEP, "grid": {"pretrain.embedding": ["rope", "nope"]}})
    assert "needs an axis in grid, such as pretrain.train.learning_rate: […]" in found
    grid = {**SWEEP["grid"], RATE: [1e-3, 1e-3]}
    [found] = told(tmp_path, {**SWEEP, "grid": grid})
    assert "pretrain.select.over: found one candidate, 0.001, and needs several" in found


@pytest.mark.parametrize(
    ("field", "values"),
    [("validation_tokens", [100, 200]), ("validate_every", [1, 2]), ("select", ["last", "best"])],
)
def test_what_the_candidates_are_compared_by_is_no_choice(
    tmp_path: Path, field: str, values: list[Any]
) -> None:
    content = changed(SWEEP, {"stages.pretrain.select": {"over": f"train.{field}"}})
    content["grid"] = {"pretrain.embedding": ["rope", "nope"], f"pretrain.train.{field}": values}
    [found] = told(tmp_path, content)
    assert (
        f"stages.pretrain.select.over: found 'train.{field}', which changes what the candidates"
        " are compared by, needs a setting of the training itself"
    ) in found


def test_a_stage_without_validations_can_not_be_selected(tmp_path: Path) -> None:
    stages = {"pretrain": {**PRETRAIN, "select": RULE}}
    [found] = told(tmp_path, {**SWEEP, "stages": stages})
    assert "train.validate_every: is missing: select compares the candidates by" in found


def test_a_choice_needs_a_list_of_seeds(tmp_path: Path) -> None:
    rule = {"first": 2, "at_most": 4, "until": "claims"}
    report = {"claims": ["perplexity@64: nope > rope"]}
    [found] = told(tmp_path, {**SWEEP, "seeds": rule, "report": report})
    assert "seeds: found a rule, and select[pretrain[" in found
    assert "reads trainings under several seeds, needs a list" in found


def test_text_of_the_selection_is_not_evaluated(tmp_path: Path) -> None:
    for changes in (
        {"stages.perplexity.part": "all"},
        {"stages.perplexity.part": "all", "stages.perplexity.from": "extend"},
        {"stages.pretrain.train.validation_part": "all"},
    ):
        [found] = told(tmp_path, changed(SWEEP, changes))
        assert "perplexity.corpus: this text selected the model of pretrain" in found
    other = {"stages.perplexity.part": "all", "stages.perplexity.corpus": "python-source"}
    assert load(tmp_path, changed(SWEEP, other)).stages


def test_a_failed_candidate_blocks_the_selection_and_is_named(tmp_path: Path) -> None:
    made = load(tmp_path, SWEEP)
    failed = "pretrain[embedding=rope,train.learning_rate=0.004,seed=7]"
    states = {
        stage.key: StageState(Status.FAILED if stage.label == failed else Status.DONE)
        if stage.section == "pretrain"
        else NOT_STARTED
        for stage in made.stages
    }
    found = block_descendants(made.stages, states)
    for stage in made.stages:
        if stage.section in ("select", "extend", "perplexity"):
            is_blocked = found[stage.key].status is Status.BLOCKED
            assert is_blocked is (stage.embedding == "rope"), stage.label
            if is_blocked:
                assert found[stage.key].reason == f"{failed} failed"
