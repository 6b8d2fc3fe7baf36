"""The cells of a grid against itertools, and what is wrong with axes."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_files import BASE, PRETRAIN, PRETRAIN_LINE, changed, load, of, told

from fope_lab.embeddings import EMBEDDINGS

VALUES: dict[str, list[Any]] = {
    "p.embedding": ["nope", "rope", {"type": "fope", "sigma": 0.1}, {"type": "rope", "base": 500}],
    "p.train.tokens": [1000, 2000, 3000],
    "p.train.learning_rate": [1e-3, 0.5, 2],
    "p.model.num_layers": [1, 2, 3],
}
ONE: dict[str, Any] = {"name": "one", "stages": {"p": PRETRAIN}}

axes = st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=3)
seeds = st.lists(st.integers(0, 2**32 - 1), unique=True, min_size=1, max_size=3)


@st.composite
def grids(draw: st.DrawFn, names: st.SearchStrategy[list[str]] = axes) -> dict[str, list[Any]]:
    """Some axes with some of their values, each once."""
    return {
        axis: draw(
            st.lists(st.sampled_from(VALUES[axis]), min_size=1, max_size=3, unique_by=json.dumps)
        )
        for axis in draw(names)
    }


def cells(folder: Path, content: dict[str, Any]) -> list[str]:
    """The axes and seed of every stage named p, as JSON, sorted."""
    found = of(load(folder, {**ONE, **content}), "p")
    return sorted(_cell(stage.axes, stage.seed) for stage in found)


def _cell(values: dict[str, Any], seed: Any) -> str:
    return json.dumps([values, seed], sort_keys=True)


@settings(deadline=None, max_examples=50)
@given(grid=grids(), chosen=seeds)
def test_grid_is_the_product(
    tmp_path_factory: pytest.TempPathFactory, grid: dict[str, list[Any]], chosen: list[int]
) -> None:
    expected = sorted(
        _cell(dict(zip(grid, values, strict=True)), seed)
        for values in itertools.product(*grid.values())
        for seed in chosen
    )
    folder = tmp_path_factory.getbasetemp()
    assert cells(folder, {"grid": grid, "seeds": chosen}) == expected


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_zip_goes_together_and_multiplies_with_grid(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    names = data.draw(axes)
    size = data.draw(st.integers(1, 3))
    zipped = {axis: data.draw(st.permutations(VALUES[axis]))[:size] for axis in names}
    grid = data.draw(grids(axes.map(lambda found: [a for a in found if a not in names])))
    rows = [dict(zip(zipped, row, strict=True)) for row in zip(*zipped.values(), strict=True)]
    expected = sorted(
        _cell({**row, **dict(zip(grid, values, strict=True))}, 0)
        for row in rows or [{}]
        for values in itertools.product(*grid.values())
    )
    assert cells(tmp_path_factory.getbasetemp(), {"grid": grid, "zip": zipped}) == expected


@settings(deadline=None, max_examples=50)
@given(grid=grids(axes.filter(lambda found: len(found) >= 2)), data=st.data())
def test_exclude_drops_what_matches_in_part(
    tmp_path_factory: pytest.TempPathFactory, grid: dict[str, list[Any]], data: st.DataObject
) -> None:
    named = data.draw(st.lists(st.sampled_from(sorted(grid)), min_size=1, unique=True))
    pattern = {axis: data.draw(st.sampled_from(grid[axis])) for axis in named}
    expected = sorted(
        _cell(cell, 0)
        for values in itertools.product(*grid.values())
        for cell in [dict(zip(grid, values, strict=True))]
        if any(cell[axis] != value for axis, value in pattern.items())
    )
    folder, content = tmp_path_factory.getbasetemp(), {"grid": grid, "exclude": [pattern]}
    if expected:
        assert cells(folder, content) == expected
    else:
        assert [line.split(" ", 1)[1] for line in told(folder, {**ONE, **content})] == [
            "exclude: leaves no grid point"
        ]


def test_exclude_goes_before_include(tmp_path: Path) -> None:
    content = {
        "grid": {"p.embedding": ["rope", "nope"]},
        "exclude": [{"p.embedding": "rope"}],
        "include": [{"p.embedding": "rope"}],
    }
    assert cells(tmp_path, content) == cells(tmp_path, {"grid": content["grid"]})


def test_include_appends_complete_cells_and_may_set_more(tmp_path: Path) -> None:
    content = {
        "grid": {"p.embedding": ["rope"], "p.model.num_layers": [1, 2]},
        "include": [{"p.embedding": "nope", "p.model.num_layers": 3, "p.train.tokens": 9000}],
    }
    stages = of(load(tmp_path, {**ONE, **content}), "p")
    assert [stage.axes for stage in stages] == [
        {"p.embedding": "rope", "p.model.num_layers": 1},
        {"p.embedding": "rope", "p.model.num_layers": 2},
        {"p.embedding": "nope", "p.model.num_layers": 3, "p.train.tokens": 9000},
    ]
    assert [stage.spec.train.tokens for stage in stages] == [100_000, 100_000, 9000]


def test_without_a_grid_the_cells_are_those_included(tmp_path: Path) -> None:
    content = {"include": [{"p.embedding": "nope"}, {"p.embedding": "alibi"}]}
    stages = of(load(tmp_path, {**ONE, **content}), "p")
    assert [stage.embedding for stage in stages] == ["nope", "alibi"]


@settings(deadline=None, max_examples=50)
@given(st.permutations(["p.embedding", "p.embedding.base", "p.embedding.sigma"]))
def test_whole_objects_are_set_before_what_is_in_them(
    tmp_path_factory: pytest.TempPathFactory, order: list[str]
) -> None:
    values = {
        "p.embedding": [{"type": "fope", "base": 7.0}],
        "p.embedding.base": [500],
        "p.embedding.sigma": [0.1],
    }
    content = {**ONE, "grid": {axis: values[axis] for axis in order}}
    [stage] = of(load(tmp_path_factory.getbasetemp(), content), "p")
    assert stage.config["embedding"]["base"] == 500
    assert stage.config["embedding"]["sigma"] == 0.1


@pytest.mark.parametrize("section", ["rope", {"type": "rope"}, {"type": "rope", "base": 3}])
def test_an_option_is_set_on_a_name_as_on_a_mapping(tmp_path: Path, section: Any) -> None:
    content = changed(ONE, {"stages.p.embedding": section})
    [stage] = of(load(tmp_path, {**content, "grid": {"p.embedding.base": [500]}}), "p")
    assert stage.config["embedding"] == {"type": "rotary", "base": 500.0}


def test_options_of_names_in_all_sections(tmp_path: Path) -> None:
    content = changed(
        ONE,
        {
            "stages.p.model": "tiny",
            "stages.p.data": {"length": 64, "mix": [{"corpus": "c4"}, {"task": "passkey"}]},
            "stages.p.embedding": {"type": "rotary", "transforms": [{"type": "yarn", "factor": 2}]},
            "grid": {
                "p.model.num_layers": [5],
                "p.data.mix.0.corpus.limit": [1000],
                "p.data.mix.1.digits": [3],
                "p.embedding.transforms.0.factor": [4],
            },
        },
    )
    [stage] = of(load(tmp_path, content), "p")
    assert (stage.spec.model.num_layers, stage.scale) == (5, "tiny")
    assert stage.spec.data.mix[0].corpus.limit == 1000
    assert stage.spec.data.mix[1].task.digits == 3
    assert stage.config["embedding"]["transforms"] == [{"type": "yarn", "factor": 4.0}]


@pytest.mark.parametrize(
    ("axis", "values", "name"),
    [
        ("p.timeout", [10, 20], "timeout"),
        ("p.resources.cpus", [1, 2], "resources"),
        ("p.train.compile", [True, False], "compile"),
    ],
)
def test_an_axis_that_no_result_depends_on_is_an_error(
    tmp_path: Path, axis: str, values: list[Any], name: str
) -> None:
    [line] = told(tmp_path, {**ONE, "grid": {axis: values}})
    assert line.endswith(
        f" grid.{axis}: no result depends on {name}: all its values give the same stage, needs one"
        " value, in the stage's section"
    )
    [stage] = of(load(tmp_path, {**ONE, "grid": {axis: values[:1]}}), "p")
    assert stage.axes == {axis: values[0]}


def test_setting_a_cell_changes_no_other(tmp_path: Path) -> None:
    """The section of the file and the values of the axes are copied, not shared."""
    whole = [{"type": "fope"}, {"type": "rope"}]
    content = {**ONE, "grid": {"p.embedding": whole, "p.embedding.base": [500, 600, 1e4]}}
    found = [stage.config["embedding"].get("base") for stage in of(load(tmp_path, content), "p")]
    assert found == [500, 600, None] * 2


def test_stages_downstream_multiply_with_their_parents(tmp_path: Path) -> None:
    content = {
        **BASE,
        "seeds": [0, 1],
        "grid": {
            "pretrain.embedding": ["rope", "nope", "alibi"],
            "extend.train.tokens": [4096, 8192],
            "passkey.trials": [5, 6],
            "perplexity.method": ["chunked"],
        },
    }
    counts = Counter(stage.section for stage in load(tmp_path, content).stages)
    pretrain = 3 * 2
    assert counts == {
        "prepare-data": 3,  # c4 for training and validation, docstrings for training
        "pretrain": pretrain,
        "extend": pretrain * 2,
        "finetune": pretrain * 2,
        "passkey": pretrain * 2 * 2,
        "perplexity": pretrain,
    }


def test_the_axes_of_a_stage_are_its_own_and_its_ancestors(tmp_path: Path) -> None:
    content = {**BASE, "grid": {"pretrain.embedding": ["rope"], "extend.train.tokens": [4096]}}
    sweep = load(tmp_path, content)
    assert of(sweep, "perplexity")[0].axes == {"pretrain.embedding": "rope"}
    assert of(sweep, "passkey")[0].axes == {
        "pretrain.embedding": "rope",
        "extend.train.tokens": 4096,
    }
    assert of(sweep, "passkey")[0].label == "passkey[embedding=rope,train.tokens=4096,seed=0]"


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.sampled_from(["rope", "nope", "bare", "mapping", "composition"]), min_size=1, max_size=4
    )
)
def test_equal_stages_are_one(tmp_path_factory: pytest.TempPathFactory, chosen: list[str]) -> None:
    spelt: dict[str, Any] = {
        "rope": "rope",
        "nope": "nope",
        "bare": "rotary",
        "mapping": {"type": "rope", "base": 10000},
        "composition": {"type": "rotary", "transforms": []},
    }
    content = {**BASE, "grid": {"pretrain.embedding": [spelt[name] for name in chosen]}}
    sweep = load(tmp_path_factory.getbasetemp(), content)
    different = len({name == "nope" for name in chosen})
    for name in BASE["stages"]:
        assert len(of(sweep, name)) == different
    assert len({stage.key for stage in sweep.stages}) == len(sweep.stages)


def grid_of(text: str, stages: str = f"p: {PRETRAIN_LINE}") -> str:
    return f"name: x\nstages:\n  {stages}\n{text}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("grid: {p.embeding: [rope, nope]}",
         ["4 grid.p.embeding: unknown key 'embeding'; did you mean 'embedding'? (allowed: "
         "data, embedding, model, prefix, resources, select, timeout, tokenizer, train)"]),
        ("grid: {q.embedding: [rope]}",
         ["4 grid.q.embedding: matches nothing: no stage 'q' (allowed: p)"]),
        ("grid: {p: [1]}", ["4 grid.p: found 'p', needs a path such as p.field"]),
        ("grid: {p.kind: [extend]}", ["4 grid.p.kind: kind can't be an axis"]),
        ("grid: {p.seed: [1]}", ["4 grid.p.seed: seed can't be an axis; use seeds"]),
        ("grid: {p.select: [1]}", ["4 grid.p.select: select can't be an axis"]),
        ("grid: {p.embedding: rope}", ["4 grid.p.embedding: found 'rope', needs a list"]),
        ("grid:\n  p.embedding: [rope,\n    nop]",
         ["6 grid.p.embedding[1]: unknown embedding 'nop'; did you mean 'nope'? (allowed: "
         f"{', '.join(sorted(EMBEDDINGS.names()))}, and with options "
         f"{', '.join(sorted(set(EMBEDDINGS.all_names()) - set(EMBEDDINGS.names())))})"]),
        ("grid: {p.train.tokens.x: [1, 2]}",
         ["4 grid.p.train.tokens.x: train.tokens is 100000, which has no fields"]),
        ("grid: {p.data.mix.0.weight: [1]}",
         ["4 grid.p.data.mix.0.weight[0]: data.mix is not a list, so it has no items"]),
        ("grid: {p.train.tokens: [1000], p.train.tokens: [2000]}",
         ["4 grid.p.train.tokens: the key 'p.train.tokens' is given twice (first in line 4)"]),
        ("zip: {p.embedding: [rope, nope], p.train.tokens: [1000]}",
         ["4 zip: the lists must be equally long; found p.embedding 2, p.train.tokens 1"]),
        ("grid: {p.embedding: [rope]}\nzip: {p.embedding: [nope]}",
         ["5 zip.p.embedding: this axis is in grid too"]),
        ("grid: {p.embedding: [rope], p.train.tokens: [1000]}\ninclude: [{p.embedding: nope}]",
         ["5 include[0]: a grid point must set every axis; missing: p.train.tokens"]),
        ("grid: {p.embedding: [rope, nope]}\nexclude: [{p.embeding: rope}]",
         ["5 exclude[0].p.embeding: no such axis; did you mean 'p.embedding'? (allowed: "
         "p.embedding)"]),
        ("grid: {p.embedding: [rope, nope]}\nexclude: [{p.embedding: nop}]",
         ["5 exclude[0].p.embedding: found 'nop'; did you mean 'nope'? (allowed: rope, nope)"]),
        ("grid: {p.train.tokens: [1, 2]}\nexclude: [{p.train.tokens: true}]",
         ["5 exclude[0].p.train.tokens: found true (allowed: 1, 2)"]),
        ("zip: {p.embedding: [rope, nope], p.train.tokens: [1000, 2000]}\n"
         "exclude: [{p.embedding: rope, p.train.tokens: 2000}]",
         ["5 exclude[0]: matches no grid point"]),
        ("grid: {p.embedding: [rope]}\nexclude: [{}]",
         ["5 exclude[0]: names no axis, so it would drop every grid point"]),
        ("grid: {p.embedding: [rope]}\nexclude: [{p.embedding: rope}]",
         ["5 exclude: leaves no grid point"]),
    ],
)  # fmt: skip
def test_wrong_axes(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert told(tmp_path, grid_of(text)) == expected


def test_an_option_that_one_cell_has_not_names_the_cell(tmp_path: Path) -> None:
    text = grid_of(
        "seeds: [0, 1]\n"
        "grid:\n"
        "  p.embedding: [rope, nope, alibi]\n"
        "  p.embedding.base: [100, 1000]\n"
        "  p.model.num_layers: [1, 2]"
    )
    assert told(tmp_path, text) == [
        "7 grid.p.embedding.base: unknown option 'base' of nope (allowed: query_scale) (with"
        " p.embedding nope)",
        "7 grid.p.embedding.base: unknown option 'base' of alibi (allowed: query_scale, slopes)"
        " (with p.embedding alibi)",
    ]


def test_a_problem_between_two_axes_names_both(tmp_path: Path) -> None:
    """YaRN's factor is fine, the head is odd only in one model."""
    text = grid_of(
        "grid:\n"
        "  p.embedding: [nope, rope]\n"
        "  p.model: [tiny, {num_layers: 1, num_heads: 1, head_dim: 5}]"
    )
    assert told(tmp_path, text) == [
        "5 grid.p.embedding[1]: head_dim 5 is odd, but a rotation needs pairs of dimensions (with "
        "p.model (num_layers=1,num_heads=1,head_dim=5))"
    ]


def test_a_problem_of_a_child_names_the_cells_of_its_parent(tmp_path: Path) -> None:
    text = (
        "name: x\n"
        "stages:\n"
        f"  p: {PRETRAIN_LINE}\n"
        "  e: {kind: extend, from: p, embedding: fope, data: {corpus: c4, length: 64},"
        " train: {tokens: 1e5, batch_tokens: 2048, learning_rate: 1e-3}}\n"
        "grid: {p.data.length: [4, 64]}\n"
    )
    [found] = told(tmp_path, text)
    assert found.startswith("4 stages.e.embedding: no frequency is left for the Fourier series")
    assert found.endswith("(with p.data.length 4)")
