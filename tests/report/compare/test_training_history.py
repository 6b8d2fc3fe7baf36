"""Whether models may be compared, and the marks of tables where they may not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import BASE, report_of, write_plan

from fope_lab.report.compare.comparability import TrainingHistory, compare, differences
from fope_lab.report.render.figures import draw_figures
from fope_lab.report.render.json import report_json
from fope_lab.report.render.tables import Table, build_tables
from fope_lab.report.render.terminal import table_text
from fope_lab.report.results.cells import StageResult, read_stages
from fope_lab.store.root import Store
from fope_lab.sweep import Plan

PRETRAIN, PERPLEXITY = BASE["stages"]["pretrain"], BASE["stages"]["perplexity"]


def keys_of(plan: Plan, stage: str = "perplexity", seed: int = 0) -> list[str]:
    return [s.key for s in plan.sweep.stages if s.section == stage and s.seed == seed]


def compared(folder: Path, changes: dict[str, Any], stage: str = "perplexity") -> tuple[str, ...]:
    """What the last of the stages of seed 0 has different from the first."""
    plan = write_plan(folder, changes)
    keys = keys_of(plan, stage)
    return differences(readings_of(plan, folder), keys[-1], keys[0])


def readings_of(plan: Plan, folder: Path) -> Mapping[str, StageResult]:
    return {r.stage.key: r for r in read_stages(plan.sweep.stages, Store(folder / "store"))}


def chain(first: dict[str, Any], second: dict[str, Any] | None) -> dict[str, Any]:
    """The stages of a pretraining and, if asked for, of an extension after it."""
    stages: dict[str, Any] = {"pretrain": {**PRETRAIN, **first}}
    stages["short"] = {**PERPLEXITY, "from": "pretrain"}
    if second is not None:
        stages["extend"] = {**PRETRAIN, "kind": "extend", "from": "pretrain", **second}
        del stages["extend"]["model"], stages["extend"]["embedding"]
        stages["perplexity"] = {**PERPLEXITY, "from": "extend"}
    return stages


def test_embeddings_under_one_seed_may_be_compared(tmp_path: Path) -> None:
    grid = {"pretrain.embedding": ["nope", "alibi", "rope", "fope", "fire", "kerple"]}
    plan = write_plan(tmp_path, {"grid": grid})
    readings = readings_of(plan, tmp_path)
    keys = keys_of(plan)
    assert len(keys) == 6
    assert all(differences(readings, a, b) == () for a in keys for b in keys)


@pytest.mark.parametrize(
    ("axis", "values", "expected"),
    [
        ("train.tokens", [64000, 128000], ("tokens (128,000 and 64,000)",)),
        ("train.batch_tokens", [640, 1280], ("order (batches of 1,280 and 640 tokens)",)),
        ("data.length", [32, 64], ("data (lengths 64 and 32)",)),
        ("model.num_layers", [2, 4], None),
        ("train.learning_rate", [1e-3, 2e-3], ()),
        (
            "data",
            [
                {"corpus": "python-docs", "length": 64},
                {
                    "mix": [
                        {"corpus": "python-docs", "weight": 3},
                        {"task": "posgen", "subtask": "cot", "weight": 1},
                    ],
                    "length": 64,
                },
            ],
            ("data (75 % python-docs + 25 % posgen(subtask=cot) and python-docs)",),
        ),
    ],
)
def test_each_setting_is_named(
    tmp_path: Path, axis: str, values: list[Any], expected: tuple[str, ...] | None
) -> None:
    plan = write_plan(tmp_path, {"grid": {f"pretrain.{axis}": values}, "seeds": [0]})
    first, last = keys_of(plan)
    found = differences(readings_of(plan, tmp_path), last, first)
    if expected is None:  # parameters: by counting the weights of both models
        sizes = [_weights(layers) for layers in values]
        expected = (f"parameters (+{100 * (sizes[1] / sizes[0] - 1):.1f} %)",)
    assert found == expected


def _weights(layers: int, width: int = 32, vocabulary: int = 272) -> int:
    """Attention's 4 squares, 3 of a feed-forward 4 times as wide, 2 norms; a last norm, head and
    input embedding."""
    return layers * (4 * width**2 + 12 * width**2 + 2 * width) + width + 2 * vocabulary * width


def test_seeds_are_orders(tmp_path: Path) -> None:
    plan = write_plan(tmp_path)
    one, other = keys_of(plan, seed=1)[0], keys_of(plan, seed=2)[0]
    found = differences(readings_of(plan, tmp_path), one, other)
    assert found == ("order (seeds 1 and 2)",)


def test_the_whole_chain_of_trainings_counts(tmp_path: Path) -> None:
    more = {"data": {"corpus": "python-docs", "length": 128}}
    stages = chain({}, {**more, "train": {**PRETRAIN["train"], "tokens": 6400}})
    plan = write_plan(tmp_path, {"stages": stages, "grid": {}, "seeds": [0]})
    [before], [after] = keys_of(plan, "short"), keys_of(plan, "perplexity")
    assert differences(readings_of(plan, tmp_path), after, before) == (
        "tokens (70,400 and 64,000)",
        "data (lengths 64 then 128 and 64)",
    )


def test_a_difference_far_back_is_found(tmp_path: Path) -> None:
    stages = chain({}, {"train": {**PRETRAIN["train"], "tokens": 6400}})
    grid = {"pretrain.train.batch_tokens": [640, 1280]}
    found = compared(tmp_path, {"stages": stages, "grid": grid})
    assert found == ("order (batches of 1,280 then 640 and 640 tokens)",)


def test_other_content_under_one_name_is_other_data(tmp_path: Path) -> None:
    for name, text in (("a", "one " * 500), ("b", "two " * 500)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text.txt").write_text(text)
    data = [{"corpus": {"files": [f"{name}/*.txt"]}, "length": 64} for name in "ab"]
    found = compared(tmp_path, {"grid": {"pretrain.data": data}})
    assert found == ("data (other content or options under the same names)",)


def test_what_a_checkpoint_was_trained_on_is_not_known() -> None:
    one, two, scratch = (TrainingHistory(100, start, ()) for start in ("hf:a@1", "hf:b@1", None))
    assert compare(one, TrainingHistory(100, "hf:a@1", ())) == ()
    unknown = "; the training data of a checkpoint is unknown"
    assert compare(one, two) == (f"start (hf:a@1 and hf:b@1{unknown})",)
    assert compare(scratch, one) == (f"start (from scratch and hf:a@1{unknown})",)


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_parameters_are_compared_both_ways_alike(one: int, other: int) -> None:
    found = compare(TrainingHistory(one, None, ()), TrainingHistory(other, None, ()))
    back = compare(TrainingHistory(other, None, ()), TrainingHistory(one, None, ()))
    assert bool(found) is bool(back) is (abs(one - other) > 0.01 * min(one, other))


def table_of(folder: Path, changes: dict[str, Any]) -> Table:
    tables = build_tables(report_of(folder, changes=changes))
    return next(table for table in tables if table.title == "Perplexity")


def test_equal_models_have_no_mark(tmp_path: Path) -> None:
    table = table_of(tmp_path, {})
    assert not any(entry.unequal for row in table.rows for entry in row.entries)
    assert "‡" not in table_text(table).plain


def test_the_odd_row_is_marked_and_its_difference_named(tmp_path: Path) -> None:
    grid = {"pretrain.train.tokens": [64000, 128000], "pretrain.train.learning_rate": [1e-3, 2e-3]}
    exclude = [{"pretrain.train.tokens": 128000, "pretrain.train.learning_rate": 2e-3}]
    table = table_of(tmp_path, {"grid": grid, "exclude": exclude})
    marked = {row.labels: {bool(e.unequal) for e in row.entries} for row in table.rows}
    assert marked == {
        ("64000", "0.001"): {False},
        ("64000", "0.002"): {False},
        ("128000", "0.001"): {True},
    }
    [note] = [note for note in table.notes if "‡" in note]
    assert "tokens (128,000 and 64,000)" in note
    assert "‡ tokens (128,000 and 64,000)" in table.rows[2].entries[0].title
    lines = table_text(table).plain.splitlines()
    assert sum("‡" in line for line in lines) == 2  # the row and the legend
    assert [line.count("‡") for line in lines if line.startswith("128000")] == [4]


def test_figures_and_json_say_it_too(tmp_path: Path) -> None:
    changes = {"grid": {"pretrain.train.tokens": [64000, 128000]}}
    report = report_of(tmp_path, changes=changes)
    curves = [figure for figure in draw_figures(report) if "by context length" in figure.title]
    assert len(curves) == 2
    for figure in curves:
        assert sum("‡" in note for note in figure.notes) == 1
    stages = [stage for stage in report_json(report)["stages"] if stage["kind"] != "prepare-data"]
    for stage in stages:
        more = ["tokens (128,000 and 64,000)"]
        assert stage["unequal"] == (more if "128000" in stage["name"] else [])


def test_panels_are_apart(tmp_path: Path) -> None:
    """Where embeddings are compared at several lengths, each length is a panel of its own."""
    grid = {"pretrain.embedding": ["rope", "fope"], "pretrain.data.length": [32, 64]}
    table = table_of(tmp_path, {"grid": grid})
    assert not any(entry.unequal for row in table.rows for entry in row.entries)


def test_an_embedding_that_learns_much_is_marked(tmp_path: Path) -> None:
    """FIRE's network is nothing to a large model, and is something to one of 8 dimensions."""
    model = {"num_layers": 2, "num_heads": 1, "head_dim": 8}
    stages = {**BASE["stages"], "pretrain": {**PRETRAIN, "model": model}}
    grid = {"pretrain.embedding": ["rope", "fope", "fire"]}
    table = table_of(tmp_path, {"stages": stages, "grid": grid})
    assert [bool(row.entries[0].unequal) for row in table.rows] == [False, False, True]
    [note] = [note for note in table.notes if "‡" in note]
    assert "fire differs from rope in parameters (+" in note
