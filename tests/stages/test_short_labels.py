"""Short labels tell the same stages apart as whole ones, and mean the same stages."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.stages.labels import stage_label
from fope_lab.stages.short_labels import LabelParts, short_labels
from fope_lab.sweep.stage_filter import find_stage, find_stages

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
    assert list(short_labels(labels).values()) == [
        f"pretrain[embedding={embedding},seed={seed}]" for embedding in ZIPPED for seed in (0, 1)
    ]


def test_axes_that_multiply_stay() -> None:
    labels = [f"pretrain[embedding={e},rate={r},seed=0]" for e in ("rope", "nope") for r in (1, 2)]
    assert short_labels(labels) == {label: label for label in labels}


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
    ]
    assert list(short_labels(labels).values()) == [
        "a[x=1,seed=0]",
        "a[x=2,seed=0]",
        "b[x=1,y=1,seed=0]",
        "b[x=1,y=2,seed=0]",
        "select[a[x=1,seed=0]]",
        "select[a[x=2,seed=0]]",
        *labels[6:],
    ]


@dataclass(frozen=True)
class Named:
    key: str
    section: str
    label: str


VALUES = st.sampled_from(["rope", "fope(base=1,sigma=2)", "1e-3", "a+b"])
CELLS = st.lists(st.tuples(VALUES, VALUES, VALUES, st.integers(0, 2)), min_size=1, unique=True)


@given(cells=CELLS, absent=st.integers(0, 3))
def test_a_short_label_means_the_stage_that_it_is_of(
    cells: list[tuple[str, str, str, int]], absent: int
) -> None:
    stages = []
    for number, (*values, seed) in enumerate(cells):
        axes = {f"s.axis{i}": value for i, value in enumerate(values) if number % 2 or i != absent}
        stages.append(Named(f"{number:032x}", "s", stage_label("s", axes, seed)))
    unique = {stage.label: stage for stage in stages}
    short = short_labels(unique)
    assert len(set(short.values())) == len(unique)
    for label, stage in unique.items():
        whole, part = LabelParts.of(label), LabelParts.of(short[label])
        assert whole is not None
        assert part is not None
        assert str(whole) == label
        assert whole.includes(part)
        assert stage in find_stages(unique.values(), [short[label]])
        if absent == 3:  # all have the same axes, so that no label is a part of another
            assert find_stage(unique.values(), short[label]) == stage


@pytest.mark.parametrize("label", ["a", "a[]", "a]", "[x=1]", "a[x]", "a[x=1,x=2]", "a[x=1]b[y=2]"])
def test_what_has_no_fields_is_no_label_with_fields(label: str) -> None:
    assert LabelParts.of(label) is None
