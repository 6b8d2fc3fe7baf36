"""What is told about embeddings, against the parser, the modules and closed forms."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.options import Option
from fope_lab.embeddings import (
    EMBEDDINGS,
    PRESETS,
    EmbeddingError,
    Shape,
    build_embedding,
    embedding_names,
    resolve_embedding,
)
from fope_lab.embeddings.base import EMBEDDING_TYPES, Embedding
from fope_lab.embeddings.describe import EXAMPLES, Inspection, describe, inspect_all
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES
from fope_lab.embeddings.spec import TRANSFORMS

SHAPE = Shape(head_dim=64, num_heads=8, num_kv_heads=4, train_length=512)
NONE = dataclasses.MISSING
KINDS = {**TRANSFORM_TYPES.all(), **EMBEDDING_TYPES.all()}
NAMES = sorted({*embedding_names(), *EMBEDDING_TYPES.all()})


@pytest.fixture
def windowed() -> Iterator[str]:
    """The name of an added embedding with a required option that nothing has an example for."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Windowed(Embedding, name="windowed", source="nobody"):
        """Does nothing."""

        window: Annotated[int, Interval(ge=1), Doc("tokens")]

    yield Windowed.name
    del EMBEDDING_TYPES._types[Windowed.name]


def options_of(of: str) -> dict[tuple[str, str], Option]:
    """Every option of a preset, mechanism or transform, by part and key."""
    return {
        (part.name, name): option
        for part in describe(of).own_parts
        for name, option in part.options().items()
    }


def objects_of(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The mappings that the schema of embeddings or of transforms allows, by their type."""
    objects = [one for one in schema["anyOf"] if "properties" in one]
    return {one["properties"]["type"]["const"]: one for one in objects}


SCHEMAS = objects_of(EMBEDDINGS.json_schema())
TRANSFORM_SCHEMAS = objects_of(SCHEMAS["rotary"]["properties"][TRANSFORMS]["items"])


@pytest.mark.parametrize("name", KINDS)
def test_every_option_is_told_with_its_meaning_and_in_the_schema(name: str) -> None:
    kind = KINDS[name]
    known = TRANSFORM_SCHEMAS if name in TRANSFORM_SCHEMAS else SCHEMAS
    properties = known[name]["properties"]
    # A preset of the same name describes its own parts, of which this is one.
    told = {key: option for (part, key), option in options_of(name).items() if part == name}
    fields = dataclasses.fields(kind)
    assert list(told) == [field.name for field in fields]
    assert list(properties) == ["type", *told]
    for field in fields:
        option = told[field.name]
        assert option.doc
        assert option.default == field.default
        assert properties[field.name] == {
            **option.json_schema(),
            **({} if field.default in (NONE, None) else {"default": as_json(field.default)}),
        }
        assert properties[field.name]["description"] == option.doc
        assert str(properties[field.name]).count("'description'") == 1 or field.name == TRANSFORMS


def as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", PRESETS)
def test_a_default_that_is_told_is_what_the_parser_takes(name: str) -> None:
    required = {option: EXAMPLES[option] for option in describe(name).open}
    plain = resolve_embedding({"type": name, **required})
    schema = SCHEMAS[name]
    assert set(schema["required"]) == {"type", *required}
    told = options_of(name)
    assert {key for _, key in told} == schema["properties"].keys() - {"type"}
    for (_, key), option in told.items():
        if option.default is not NONE:
            described = {"type": name, **required, key: option.default}
            assert schema["properties"][key].get("default") == as_json(option.default)
            assert resolve_embedding(described) == plain, key


def test_what_a_preset_sets_is_a_default() -> None:
    assert options_of("p-rope")["truncate", "p"].default == 0.75
    assert describe("p-rope").open == []
    assert describe("truncate").open == ["p"]
    assert options_of("fope-official")["fourier", "below_floor"].default == "official"
    assert options_of("fope")["fourier", "below_floor"].default == "unit"


@pytest.mark.parametrize("name", PRESETS)
def test_an_option_that_parts_share_is_one_option(name: str) -> None:
    told = options_of(name)
    for (_, key), option in told.items():
        assert all(option == other for (_, other_key), other in told.items() if other_key == key)


def test_a_description_is_told_with_what_it_sets() -> None:
    one = describe(
        {"type": "rotary", "base": 500, "transforms": ["clip_floor", {"type": "yarn", "beta": 8}]}
    )
    assert [part.name for part in one.own_parts] == ["rotary", "clip_floor", "yarn"]
    assert one.open == ["factor"]
    assert one.composition == {
        "type": "rotary",
        "base": 500,
        "transforms": [{"type": "clip_floor"}, {"type": "yarn", "beta": 8}],
    }
    assert one.own_parts[2].chosen == {"beta": 8}
    assert one.own_parts[2].options().keys() > {"beta"}


def test_options_go_to_the_parts_that_leave_them_open() -> None:
    options = {"factor": 4.0, "base": 500.0}
    definition = describe({"type": "rotary", "transforms": ["yarn", "resonance"]}).definition(
        options
    )
    spec = {"type": "resonance-yarn", "factor": 4, "base": 500}
    assert definition == describe(spec).definition({})
    alibi = describe("alibi").definition(options)
    assert alibi == describe("alibi").definition({})
    kept = describe({"type": "yarn", "factor": 2}).definition({"factor": 4.0})
    assert kept == describe("yarn").definition({"factor": 2.0})
    under = describe("interpolate").definition(options)
    assert under == describe("pi").definition(options)


@pytest.mark.parametrize(
    ("spec", "path", "says"),
    [
        ("clip_flor", "e", "did you mean 'clip_floor'?"),
        ({"type": "clip_flor"}, "e.type", "did you mean 'clip_floor'?"),
        ({"type": "yarn", "alpha": 64}, "e", "alpha 64 must be less than beta 32"),
        ({"type": "truncate", "p": 2}, "e.transforms[0].p", "found 2"),
        ({"type": "rotary", "transforms": ["yarn", "x"]}, "e.transforms[1]", "unknown"),
        ({"type": "rotary", "transforms": ["yarn", {"p": 1}]}, "e.transforms[1].type", "missing"),
        ({"type": "rotary", "transforms": 3}, "e.transforms", "needs a list"),
        (None, "e", "found nothing"),
    ],
)
def test_all_but_an_open_option_is_refused(spec: Any, path: str, says: str) -> None:
    with pytest.raises(EmbeddingError) as raised:
        describe(spec, ("e",))
    [problem] = raised.value.problems
    assert problem.field == path
    assert says in str(problem)


scalars = st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.text(max_size=3)
names = st.sampled_from([*PRESETS, *KINDS, "x"])
descriptions = st.deferred(
    lambda: (
        names
        | st.fixed_dictionaries(
            {"type": names},
            optional={
                **dict.fromkeys(("factor", "base", "p", "sigma"), st.floats(0, 9) | scalars),
                TRANSFORMS: st.lists(descriptions | scalars, max_size=3) | scalars,
            },
        )
    )
)


@given(descriptions | scalars | st.dictionaries(st.text(max_size=4), scalars))
@settings(max_examples=200, deadline=None)
def test_whatever_is_described_is_told_or_refused(spec: Any) -> None:
    try:
        one = describe(spec)
    except EmbeddingError:
        return
    again = describe(one.composition)
    assert again.open == one.open
    if not one.open:
        assert again.definition({}) == one.definition({})


def inspected(name: str, shape: Shape = SHAPE, longer: int | None = None) -> Inspection:
    return Inspection(describe(name).definition(EXAMPLES), shape, longer)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_inspected_is_what_is_built(name: str) -> None:
    ours = inspected(name)
    module = build_embedding(
        {"type": name, **{option: EXAMPLES[option] for option in describe(name).open}},
        **{size: getattr(SHAPE, size) for size in ("head_dim", "num_heads", "num_kv_heads")},
        train_length=SHAPE.train_length,
    )
    assert ours.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert (ours.rotating is not None) == module.rotates
    if module.inv_freq is not None:
        frequencies = ours.frequencies[SHAPE.train_length]
        expected = module.inv_freq
        assert torch.equal(torch.tensor(frequencies, dtype=expected.dtype), expected)


@pytest.mark.parametrize(
    ("name", "pairs"),
    [("rope", 32), ("fope", 16), ("fope-official", 16), ("p-rope", 24), ("alibi", None)],
)
def test_pairs_that_rotate(name: str, pairs: int | None) -> None:
    """The sixteenth of fope is the last with a wavelength of at most 512 tokens."""
    assert inspected(name).rotating == pairs


def test_what_changes_beyond_the_training_length_is_inspected_there() -> None:
    dynamic = inspected("dynamic-ntk", longer=2048).frequencies
    rope, ntk = (inspected(name).frequencies[512] for name in ("rope", "ntk"))
    assert dynamic == {512: rope, 2048: ntk}
    assert inspected("ntk", longer=2048).frequencies.keys() == {512}
    assert inspected("dynamic-ntk").follows_length
    assert not inspected("ntk").follows_length


def test_a_survey_says_what_does_not_fit_and_goes_on(windowed: str) -> None:
    short = dataclasses.replace(SHAPE, train_length=6)
    names = ["fope", windowed, "rope", "alibi"]
    fope, added, *others = inspect_all(map(describe, names), short, {})
    assert fope.inspection is added.inspection is None
    assert "no frequency is left" in fope.problems[0].message
    assert list(map(str, added.problems)) == ["embedding.window: is missing: windowed needs window"]
    assert all(row.inspection is not None for row in others)


def test_a_survey_refuses_what_fits_no_rotation_and_wrong_options() -> None:
    odd = dataclasses.replace(SHAPE, head_dim=33)
    everything = [describe(name) for name in embedding_names()]
    with pytest.raises(EmbeddingError) as raised:
        inspect_all(everything, odd, EXAMPLES)
    assert str(raised.value).startswith("embedding: head_dim 33 is odd")
    assert len(raised.value.problems) == 1
    with pytest.raises(EmbeddingError, match=r"embedding\.factor: found 0\.5"):
        inspect_all(everything, SHAPE, {"factor": 0.5})
