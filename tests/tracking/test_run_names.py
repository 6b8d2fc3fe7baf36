"""The names of runs: all different, as short as MLflow shows them, what differs first."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shipped import FILES, sweep_of
from shipped import named as name_of

from fope_lab.stages.labels import label, stage_label
from fope_lab.tracking.outline import WIDTH, line_names, run_names


@dataclass
class Stage:
    """A stage as far as its name is concerned."""

    section: str
    axes: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    key: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        self.label = self.label or stage_label(self.section, self.axes, self.seed)
        self.key = self.key or self.label

    @property
    def embedding(self) -> str | None:
        """The embedding that the last axis of this name gives."""
        found = [value for axis, value in self.axes.items() if axis.endswith(".embedding")]
        return label(found[-1]) if found else None


def grid(section: str, seeds: int = 1, **axes: list[Any]) -> list[Stage]:
    """The stages of a section, each combination of values once; "__" is a dot in an axis."""
    return [
        Stage(
            section,
            dict(zip((name.replace("__", ".") for name in axes), values, strict=True)),
            seed,
        )
        for *values, seed in itertools.product(*axes.values(), range(seeds))
    ]


def named(*stages: Stage) -> list[str]:
    return list(run_names(stages).values())


def test_what_differs_comes_first_and_the_section_last() -> None:
    assert named(*grid("perplexity", 2, pretrain__embedding=["rope", "alibi"])) == [
        "rope s0 perplexity",
        "rope s1 perplexity",
        "alibi s0 perplexity",
        "alibi s1 perplexity",
    ]


def test_what_all_stages_have_in_common_is_left_out() -> None:
    names = named(*grid("pretrain", pretrain__embedding=["rope"], pretrain__model__scale=["60m"]))
    assert names == ["pretrain"]
    based = [{"type": name, "base": 129} for name in ("rope", "fope")]
    assert named(*grid("pretrain", pretrain__embedding=based)) == ["rope pretrain", "fope pretrain"]


def test_an_axis_that_follows_from_another_is_left_out() -> None:
    stages = [
        Stage("passkey", {"pretrain.embedding": one, "extend.embedding": other})
        for one, other in (("rope", "yarn"), ("fope", "fope-yarn"))
    ]
    assert named(*stages) == ["yarn passkey", "fope-yarn passkey"]


def test_the_option_that_differs_follows_the_embedding() -> None:
    fractions = [{"type": "p-rope", "base": 129, "p": p} for p in (0.25, 0.75)]
    names = named(*grid("perplexity", 2, pretrain__embedding=["rope", *fractions]))
    assert names[0] == "rope s0 perplexity"
    assert names[2:] == [f"p-rope {p} s{seed} perpl" for p in (0.25, 0.75) for seed in (0, 1)]


def test_a_name_says_an_embedding_once() -> None:
    ropes = ["rope", *({"type": "p-rope", "base": 129, "p": p} for p in (0.0, 0.25))]
    stages = grid("passkey", 2, pretrain__embedding=ropes, extend__embedding=ropes)
    assert named(*stages)[::2] == [
        "rope s0 passkey",
        "p-rope 0.0 rope s0 p",  # extended with p-rope, trained with rope
        "p-rope 0.25 rope s0",
        "rope p-rope 0.0 s0 p",
        "p-rope 0.0 s0 passke",
        "p-rope 0.25 0.0 s0 p",
        "rope p-rope 0.25 s0",
        "p-rope 0.0 0.25 s0 p",
        "p-rope 0.25 s0 passk",
    ]


def test_numbers_stay_whole() -> None:
    assert named(*grid("perplexity", 10, train__learning_rate=[1e-3, 3.1e-4])) == [
        *(f"1e-3 s{seed} perplexity" for seed in range(10)),
        *(f"3.1e-4 s{seed} perplexity" for seed in range(10)),
    ]


def test_a_fraction_is_a_power_of_ten_where_that_is_shorter() -> None:
    def names(values: list[Any]) -> list[str]:
        stages = grid("pretrain", train__learning_rate=values)
        return [name.removesuffix(" pretrain") for name in named(*stages)]

    assert names([1e-2, 3e-3, 1e-5]) == ["1e-2", "3e-3", "1e-5"]  # one spelling for all
    assert names([0.25, 0.5, 0.01]) == ["0.25", "0.5", "0.01"]
    assert names([0.0, -0.001, 0.0005, 2.5, 1024, None]) == [
        *("0.0", "-1e-3", "5e-4", "2.5", "1024", "none")
    ]
    assert names(["0.0010", "0.001"]) == ["0.0010", "0.001"]  # they would be the same


def test_preparations_are_told_apart_by_their_labels() -> None:
    stages = [
        Stage("prepare-data", label=f"prepare-data[c4,bpe(4096,c4),{split}]")
        for split in ("train", "validation")
    ]
    assert named(*stages) == ["train prepare-data", "validation prep-data"]


def test_sections_keep_names_of_their_own_when_they_are_cut() -> None:
    embeddings = ["resonance-yarn", "resonance-rope"]
    sections = ("extended-perplexity", "extended-passkey")
    stages = [stage for name in sections for stage in grid(name, pretrain__embedding=embeddings)]
    names = named(*stages)
    assert names[0] == "reson-yarn exte-perp"
    assert names[2] == "reson-yarn exte-pass"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_the_runs_of_our_sweeps_are_told_apart_by_words(path: Path) -> None:
    stages = sweep_of(path).stages
    names = run_names(stages)
    assert names.keys() == {stage.key for stage in stages}
    assert len(set(names.values())) == len(names)
    assert max(map(len, names.values())) <= WIDTH


def lines(*stages: Stage) -> list[str]:
    return list(line_names(stages).values())


def test_a_line_goes_by_what_tells_it_from_the_others_of_its_section() -> None:
    axes = {"pretrain__embedding": ["rope", "nope"], "train__learning_rate": [2e-3, 5e-4]}
    rates = ["rope 2e-3", "rope 5e-4", "nope 2e-3", "nope 5e-4"]
    both = [stage for section in ("pretrain", "perplexity") for stage in grid(section, **axes)]
    for stage in both:
        stage.seed = None
    assert lines(*both) == [*rates, *rates]


def test_a_line_that_is_alone_goes_by_its_embedding() -> None:
    assert lines(*grid("perplexity", pretrain__embedding=["rope"])) == ["rope"]
    rates = grid("perplexity", pretrain__embedding=["rope"], train__learning_rate=[2e-3, 5e-4])
    assert lines(*rates) == ["2e-3", "5e-4"]


VALUES = st.one_of(
    st.integers(0, 10**6),
    st.floats(1e-6, 1.0),
    st.booleans(),
    st.none(),
    st.text("ab-(=,)é ", max_size=30),
    st.fixed_dictionaries({"type": st.sampled_from(["rope", "fope"]), "p": st.floats(0, 1)}),
)
AXES = st.sampled_from(["pretrain.embedding", "pretrain.model.scale", "extend.embedding"])
STAGES = st.lists(
    st.builds(
        Stage,
        st.text("ab-_ ", min_size=1, max_size=25) | st.sampled_from(["perplexity", "passkey"]),
        st.dictionaries(AXES, VALUES),
        st.none() | st.integers(0, 1000),
    ),
    max_size=30,
)


@given(STAGES)
def test_names_are_different_and_fit(stages: list[Stage]) -> None:
    for index, stage in enumerate(stages):
        stage.key = str(index)
    names = run_names(stages)
    assert names.keys() == {stage.key for stage in stages}
    assert len(set(names.values())) == len(stages)
    assert all(len(name) <= WIDTH for name in names.values())
    found = line_names(stages)
    assert found.keys() == names.keys()
    assert all(len(name) <= WIDTH for name in found.values())
    firsts = {json.dumps([one.section, one.axes], sort_keys=True): one for one in stages}.values()
    found = line_names(firsts)
    assert len({(stage.section, found[stage.key]) for stage in firsts}) == len(firsts)


@given(
    st.lists(st.sampled_from(["nope", "rope", "alibi", "fope", "kerple"]), unique=True, min_size=2),
    st.integers(1, 20),
    st.sampled_from(["perplexity", "extended-passkey-retrieval"]),
)
def test_a_name_begins_with_the_embedding(embeddings: list[str], seeds: int, section: str) -> None:
    stages = grid(section, seeds, pretrain__embedding=embeddings)
    for stage, name in zip(stages, named(*stages), strict=True):
        first, *others = name.split()
        assert stage.axes["pretrain.embedding"].startswith(first)
        assert len(first) >= 4
        assert (f"s{stage.seed}" in others) == (seeds > 1)
