"""What a sweep file may say about an embedding, what it becomes, and what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from example_embeddings import with_needs
from jsonschema import Draft202012Validator

from fope_lab.embeddings import (
    EMBEDDINGS,
    PRESETS,
    EmbeddingError,
    Shape,
    check_definition,
    embedding_names,
    parse_embedding,
    preset_of,
    resolve_embedding,
)

TWO_CUTS = [{"type": "truncate", "p": 0.5}, {"type": "truncate", "p": 0.9}]
SIZES = {"head_dim": 32, "num_heads": 4, "num_kv_heads": 4, "train_length": 64}


def check(spec: Any, **sizes: int) -> None:
    """Check that an embedding fits these sizes, without torch."""
    check_definition(parse_embedding(spec), Shape(**sizes))


@pytest.mark.parametrize(
    "spec",
    [
        "rope",
        "rotary",
        {"type": "rope"},
        {"type": "rotary"},
        {"type": "rope", "base": 10_000},
        {"type": "rotary", "base": 10_000.0, "transforms": []},
    ],
)
def test_equal_embeddings_resolve_to_one_composition(spec: Any) -> None:
    assert resolve_embedding(spec) == {"type": "rotary"}


@pytest.mark.parametrize(
    ("spec", "composition"),
    [
        ("nope", {"type": "nope"}),
        ("alibi", {"type": "alibi"}),
        ({"type": "alibi", "slopes": "official"}, {"type": "alibi"}),
        ("fope", {"type": "fourier", "transforms": [{"type": "clip_floor"}]}),
        (
            {"type": "fope", "sigma": 0.4, "base": 129},
            {
                "type": "fourier",
                "base": 129.0,
                "sigma": 0.4,
                "transforms": [{"type": "clip_floor"}],
            },
        ),
        (
            {"type": "yarn", "factor": 4, "beta": 32},
            {"type": "rotary", "transforms": [{"type": "yarn", "factor": 4.0}]},
        ),
        (
            {"type": "fope-yarn", "factor": 2, "original_length": 64},
            {
                "type": "fourier",
                "transforms": [
                    {"type": "clip_floor", "original_length": 64},
                    {"type": "yarn", "factor": 2.0, "original_length": 64},
                ],
            },
        ),
        (
            {"type": "rope", "transforms": ["clip_floor"]},
            {"type": "rotary", "transforms": [{"type": "clip_floor"}]},
        ),
    ],
)
def test_presets_and_options_become_compositions(spec: Any, composition: Any) -> None:
    resolved = resolve_embedding(spec)
    assert resolved == composition
    assert resolve_embedding(resolved) == resolved
    dumped = (json.dumps(each, sort_keys=True) for each in (resolved, composition))
    assert len(set(dumped)) == 1, "4 and 4.0 are written alike"


WRONG: list[tuple[Any, list[str], list[str]]] = [
    ("ropee", ["e"], ["'ropee'", "did you mean 'rope'?", "fope-official"]),
    ({"type": "ropee"}, ["e.type"], ["did you mean 'rope'?", "fope-yarn"]),
    ("fope-yar", ["e"], ["did you mean 'fope-yarn'?"]),
    ({"type": "fop"}, ["e.type"], ["did you mean 'fope'?"]),
    ({"sigma": 0.3}, ["e.type"], ["missing"]),
    ({"type": 3}, ["e.type"], ["found 3"]),
    (None, ["e"], ["found nothing"]),
    (["rope"], ["e"], ["found ['rope']"]),
    ({"type": "fope", "sigmaa": 0.3}, ["e.sigmaa"], ["did you mean 'sigma'?"]),
    ({"type": "fope", "sigma": -1}, ["e.sigma"], ["found -1", "at least 0"]),
    ({"type": "fope", "sigma": "0.3"}, ["e.sigma"], ["found '0.3'", "number"]),
    ({"type": "fope", "sigma": True}, ["e.sigma"], ["found true", "number"]),
    ({"type": "fope", "sigma": float("nan")}, ["e.sigma"], ["found nan", "finite"]),
    ({"type": "rope", "base": 1}, ["e.base"], ["more than 1"]),
    ("yarn", ["e.factor"], ["yarn needs it"]),
    ({"type": "yarn", "factor": 0.5}, ["e.factor"], ["at least 1"]),
    ({"type": "yarn", "factor": 2, "original_length": 0}, ["e.original_length"], ["found 0"]),
    ({"type": "yarn", "factor": 2, "original_length": 64.5}, ["e.original_length"], ["64.5"]),
    ({"type": "yarn", "factor": 2, "alpha": 64}, ["e"], ["alpha 64", "beta 32"]),
    ({"type": "alibi", "slopes": "steep"}, ["e.slopes"], ["geometric"]),
    ({"type": "alibi", "transforms": ["yarn"]}, ["e.transforms"], ["alibi rotates nothing"]),
    ({"type": "nope", "transforms": []}, ["e.transforms"], ["nope rotates nothing"]),
    ({"type": "alibi", "factor": 4}, ["e.factor"], ["option 'factor' of alibi"]),
    ({"type": "rope", "factor": 4}, ["e.factor"], ["option 'factor' of rope"]),
    ({"type": "fope", "transforms": []}, ["e.transforms"], ["type: fourier"]),
    ({"type": "rotary", "transforms": "yarn"}, ["e.transforms"], ["a list"]),
    (
        {"type": "rotary", "transforms": ["clip_flor"]},
        ["e.transforms[0]"],
        ["did you mean 'clip_floor'?"],
    ),
    (
        {"type": "rotary", "transforms": ["clip_floor", {"type": "yarn", "fator": 4}]},
        ["e.transforms[1].fator", "e.transforms[1].factor"],
        ["did you mean 'factor'?", "missing"],
    ),
    (
        {"type": "fope-yarn", "sigma": -1, "factor": 0, "basee": 3},
        ["e.sigma", "e.factor", "e.basee"],
        ["did you mean 'base'?"],
    ),
    ({"type": "fope-yarn", "factor": 4, "original_length": 0}, ["e.original_length"], []),
]
"""A description, the places of its problems, and words about them."""


@pytest.mark.parametrize(("spec", "paths", "words"), WRONG)
def test_every_problem_is_reported_with_its_place(
    spec: Any, paths: list[str], words: list[str]
) -> None:
    with pytest.raises(EmbeddingError) as raised:
        resolve_embedding(spec, at=("e",))
    assert [problem.field for problem in raised.value.problems] == paths
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "sizes", "words"),
    [
        ("rope", {"head_dim": 33}, "head_dim 33 is odd"),
        ("fope", {"head_dim": 33}, "head_dim 33 is odd"),
        ("alibi", {"num_kv_heads": 3}, "num_heads 4 is not divisible by num_kv_heads 3"),
        ("fope", {"train_length": 6}, "no frequency is left"),
        ({"type": "yarn", "factor": 1}, {}, "changes no frequency"),
        ({"type": "fope-yarn", "factor": 1}, {}, "{type: yarn, factor: 1.0} changes no frequency"),
        ({"type": "pi", "factor": 1}, {}, "{type: interpolate, factor: 1.0} changes no frequency"),
        ({"type": "rotary", "transforms": TWO_CUTS}, {}, "{type: truncate, p: 0.9} changes no"),
        ({"type": "ntk", "factor": 4}, {"head_dim": 2}, "ntk: head_dim 2 is too small"),
        ({"type": "rope", "below_floor": "official"}, {}, "below_floor: official has no effect"),
        ({"type": "fope-fs", "below_floor": "official"}, {}, "below_floor: official has no effect"),
        ("rope", {"head_dim": 0}, "head_dim: found 0, needs a whole number from 1 to 65,536"),
        ("alibi", {"num_heads": -1, "num_kv_heads": 1}, "num_heads: found -1"),
        ("fire", {"train_length": 0}, "train_length: found 0"),
        ("rope", {"train_length": 10**400}, "train_length: found 1000"),
        ({"type": "rope", "transforms": ["clip_floor"]}, {"train_length": 10**6}, "clip_floor"),
        # Every pair turns more than 32 times in the original length: nothing to interpolate.
        ({"type": "yarn", "factor": 4, "base": 2}, {"train_length": 4096}, "changes no frequency"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_with_and_without_torch(
    spec: Any, sizes: dict[str, int], words: str
) -> None:
    from fope_lab.embeddings import build_embedding

    for attempt in (check, build_embedding):
        with pytest.raises(EmbeddingError, match=re.escape(words)) as raised:
            attempt(spec, **{**SIZES, **sizes})
        assert len(raised.value.problems) == 1


def test_what_fits_passes_the_check() -> None:
    for name in ("nope", "rope", "alibi", "fope"):
        check(name, **SIZES)
    check("alibi", **{**SIZES, "head_dim": 33})
    check({"type": "fope-yarn", "factor": 2}, **{**SIZES, "num_kv_heads": 2})


def test_presets_are_named_first() -> None:
    assert embedding_names()[: len(PRESETS)] == list(PRESETS)
    assert embedding_names()[len(PRESETS) :] == ["layered"]  # each other mechanism has a preset


def test_a_share_of_all_pairs_changes_nothing_because_it_says_so() -> None:
    """p = 1 is RoPE: the end of a grid over p, and no silent no-op."""
    check({"type": "p-rope", "p": 1.0}, **SIZES)


GOOD = [
    "rope",
    "fourier",
    {"type": "fope", "sigma": 0.4},
    {"type": "yarn", "factor": 4},
    {"type": "fope-yarn", "factor": 4, "original_length": 64},
    {"type": "rotary", "transforms": [{"type": "yarn", "factor": 4}, "clip_floor"]},
    {"type": "alibi", "slopes": "geometric"},
    "p-rope",
    {"type": "p-rope", "p": 0.25},
    {"type": "rope-a", "rounding": "nearest_wavelength"},
    {"type": "dynamic-ntk", "base_scaling": "linear"},
    {"type": "resonance-yarn", "factor": 4, "ramp": "cycles", "blend": "wavelength"},
    {"type": "yarn", "factor": 16, "attention_factor": 1.0, "truncate": False},
    {"type": "fope-official", "num_frequencies": 64, "column_sums": "listing"},
    {"type": "fope", "learned": True, "shared_cos_sin": True, "below_floor": "official"},
    {"type": "fope", "num_frequencies": 16, "frequencies": "sampled"},
    {"type": "kerple", "shared_layers": False},
    {"type": "random-rope", "max_length": 4096, "base": 129},
    {"type": "rotary", "transforms": [{"type": "truncate", "p": 0.5}, "resonance"]},
]
BAD = [
    {"type": "p-rope", "p": 1.5},
    {"type": "rope-a", "rounding": "nearest"},
    {"type": "fope-official", "noise": "uniform"},
    {"type": "fope", "num_frequencies": 0},
    {"type": "kerple", "a": 1.0},
    {"type": "random-rope", "max_length": 0},
    {"type": "rotary", "transforms": ["truncate"]},
    *(spec for spec, paths, words in WRONG if "alpha 64" not in words and "finite" not in words),
]
"""No JSON Schema compares two options, or knows a number that is none."""


def test_the_schema_accepts_and_refuses_what_the_parser_does() -> None:
    schema = EMBEDDINGS.json_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for spec in GOOD:
        assert validator.is_valid(spec), spec
        assert validator.is_valid(resolve_embedding(spec)), spec
    for spec in BAD:
        with pytest.raises(EmbeddingError):
            resolve_embedding(spec)
        assert not validator.is_valid(spec), spec


ALIASES = {"hope": "fope-cf", "cable": "fox"}
"""Presets that are another one by another name."""


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("more", [{}, {"base": 129.0}])
def test_every_preset_is_found_again(name: str, more: dict[str, Any]) -> None:
    spec = {**with_needs(name), **more}
    try:
        resolved = resolve_embedding(spec)
    except ValueError:
        assert more, f"{name} has no base"
        return
    assert preset_of(resolved) == {**spec, "type": ALIASES.get(name, name)}


def test_options_are_said_and_other_compositions_stay_as_they_are() -> None:
    assert preset_of(resolve_embedding({"type": "p-rope", "p": 0.25})) == {
        "type": "p-rope",
        "p": 0.25,
    }
    own = {"type": "rotary", "transforms": ["full_cycles", "resonance"]}
    assert preset_of(own) == resolve_embedding(own)
