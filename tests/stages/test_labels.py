"""Short names of values, corpora and stages, and labels that tell all stages of a sweep apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import shipped
from hypothesis import given
from hypothesis import strategies as st
from sweep_files import BASE, changed, load, of

from fope_lab.stages.labels import LabelParts, distinguish, label, stage_label
from fope_lab.sweep.stage_filter import find_stage, find_stages


@dataclass(frozen=True)
class Named:
    label: str
    key: str
    section: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)


def shortest(labels: Iterable[str]) -> list[str]:
    return list(distinguish(Named(label, key=label) for label in labels).values())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("rope", "rope"),
        (64, "64"),
        (0.001, "0.001"),
        (True, "true"),
        (None, "none"),
        ({"type": "rope"}, "rope"),
        ({"type": "p-rope", "p": 0.25}, "p-rope(p=0.25)"),
        ({"num_layers": 2, "tied": False}, "(num_layers=2,tied=false)"),
        ({}, "()"),
        ([32, 64], "32+64"),
        (
            {"type": "rotary", "transforms": ["clip_floor", {"type": "yarn", "factor": 4}]},
            "rotary(transforms=clip_floor+yarn(factor=4))",
        ),
    ],
)
def test_labels_of_values(value: Any, expected: str) -> None:
    assert label(value) == expected


def test_names_of_stages() -> None:
    assert stage_label("p", {}, None) == "p"
    assert stage_label("p", {}, 3) == "p[seed=3]"
    assert stage_label("p", {"p.train.tokens": 5}, 0) == "p[train.tokens=5,seed=0]"
    both = {"p.embedding": "rope", "e.embedding": {"type": "yarn", "factor": 2}}
    assert stage_label("e", both, None) == "e[p.embedding=rope,e.embedding=yarn(factor=2)]"


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        ("c4", "c4"),
        ({"type": "c4", "limit": 7}, "allenai/c4/en"),
        ("python-docs", "python-docs"),
        ({"dataset": "someone/texts", "revision": "a" * 40}, "someone/texts"),
        ({"files": "*.yaml"}, "files(1)"),
    ],
)
def test_names_of_prepared_data(tmp_path: Path, corpus: Any, expected: str) -> None:
    content = changed(BASE, {"stages.perplexity.corpus": corpus})
    names = {stage.label for stage in of(load(tmp_path, content), "prepare-data")}
    assert f"prepare-data[{expected},byte,validation]" in names


def test_stages_that_prepare_other_files_have_other_labels(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"{name} " * 200 + "\n\n" + "end " * 200)
    content = changed(BASE, {"grid": {"perplexity.corpus": [{"files": f"{n}.txt"} for n in "abc"]}})
    sweep = load(tmp_path, content)
    found = {s.label for s in of(sweep, "prepare-data") if "files" in s.label}
    assert found == {f"prepare-data[files(1),byte,validation,files={n}.txt]" for n in "abc"}
    assert find_stage(sweep.stages, "prepare-data[files(1),byte,validation,files=b.txt]")


def test_equal_labels_are_told_apart_by_settings_or_by_the_key() -> None:
    stages = [
        Named("p[x]", "k1", config={"corpus": {"limit": 5, "name": "c"}, "split": "train"}),
        Named("p[x]", "k2", config={"corpus": {"limit": 6, "name": "c"}, "split": "train"}),
        Named("q", "k3"),
        Named("q", "k4"),
    ]
    assert list(distinguish(stages).values()) == [
        "p[x,limit=5]",
        "p[x,limit=6]",
        "q[key=k3]",
        "q[key=k4]",
    ]


@pytest.mark.parametrize("file", shipped.FILES, ids=shipped.named)
def test_every_stage_of_a_shipped_sweep_is_told_apart(file: Path) -> None:
    stages = shipped.sweep_of(file).stages
    for labels in ({s.key: s.label for s in stages}, distinguish(stages)):
        assert len(set(labels.values())) == len(stages)


ZIPPED = {
    "learned": ("layer", "gelu", 512),
    "rope": ("rms", "swiglu", 344),
    "fope(base=129,sigma=0.1)": ("rms", "swiglu", 344),
}


def zipped(embedding: str, seed: int) -> str:
    norm, feed_forward, size = ZIPPED[embedding]
    axes = {
        "pretrain.embedding": embedding,
        "pretrain.model.norm": norm,
        "pretrain.model.feed_forward": feed_forward,
        "pretrain.model.intermediate_size": size,
    }
    return stage_label("pretrain", axes, seed)


def test_what_the_first_axis_of_a_zip_determines_is_left_out() -> None:
    labels = [zipped(embedding, seed) for embedding in ZIPPED for seed in (0, 1)]
    assert labels[2].endswith(
        "rope,model.norm=rms,model.feed_forward=swiglu,model.intermediate_size=344,seed=0]"
    )
    assert shortest(labels) == [
        f"pretrain[embedding={embedding},seed={seed}]" for embedding in ZIPPED for seed in (0, 1)
    ]


def test_axes_that_multiply_stay() -> None:
    labels = [f"pretrain[embedding={e},rate={r},seed=0]" for e in ("rope", "nope") for r in (1, 2)]
    assert shortest(labels) == labels


def test_sections_are_looked_at_one_by_one() -> None:
    labels = [
        "a[x=1,y=1,seed=0]",
        "a[x=2,y=1,seed=0]",
        "b[x=1,y=1,seed=0]",
        "b[x=1,y=2,seed=0]",
        "select[a[x=1,y=1,seed=0]]",
        "select[a[x=2,y=1,seed=0]]",
        "prepare-data[c4,byte,train]",
        "report",
        "c[from=runs[1],seed=0]",
        "d[x=1]",
    ]
    assert shortest(labels) == [
        "a[x=1,seed=0]",
        "a[x=2,seed=0]",
        "b[y=1,seed=0]",
        "b[y=2,seed=0]",
        "select[a[x=1,seed=0]]",
        "select[a[x=2,seed=0]]",
        *labels[6:9],
        "d",
    ]


VALUES = st.sampled_from(["rope", "fope(base=1,sigma=2)", "1e-3", "a+b"])
CELLS = st.lists(st.tuples(VALUES, VALUES, VALUES, st.integers(0, 2)), min_size=1, unique=True)


@given(cells=CELLS, absent=st.integers(0, 3))
def test_a_short_label_means_the_stage_that_it_is_of(
    cells: list[tuple[str, str, str, int]], absent: int
) -> None:
    stages = []
    for number, (*values, seed) in enumerate(cells):
        axes = {f"s.axis{i}": value for i, value in enumerate(values) if number % 2 or i != absent}
        stages.append(Named(stage_label("s", axes, seed), f"{number:032x}", "s"))
    unique = {stage.label: stage for stage in stages}
    short = distinguish(unique.values())
    assert len(set(short.values())) == len(unique)
    for text, stage in unique.items():
        whole, part = LabelParts.of(text), LabelParts.of(short[stage.key])
        assert whole is not None
        assert part is not None
        assert str(whole) == text
        assert whole.includes(part)
        assert stage in find_stages(unique.values(), [short[stage.key]])
        if absent == 3:  # all have the same axes, so that no label is a part of another
            assert find_stage(unique.values(), short[stage.key]) == stage


@pytest.mark.parametrize("label", ["a", "a[]", "a]", "[x=1]", "a[x]", "a[x=1,x=2]", "a[x=1]b[y=2]"])
def test_a_label_without_fields(label: str) -> None:
    assert LabelParts.of(label) is None
