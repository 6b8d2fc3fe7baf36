"""The parts of embeddings and their options, against the parser, the schema and the modules."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from fope_lab.config.options import Option
from fope_lab.embeddings import (
    EMBEDDINGS,
    PRESETS,
    Shape,
    build_embedding,
    embedding_names,
    parse_embedding,
    resolve_embedding,
)
from fope_lab.embeddings.base import EMBEDDING_TYPES
from fope_lab.embeddings.composition import NESTED
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES
from fope_lab.embeddings.spec import TRANSFORMS, example, named, parts_of

SHAPE = Shape(head_dim=64, num_heads=8, num_kv_heads=4, train_length=512)
NONE = dataclasses.MISSING
KINDS = {**TRANSFORM_TYPES.all(), **EMBEDDING_TYPES.all()}
NAMES = sorted({*embedding_names(), *EMBEDDING_TYPES.all()})


def options_of(of: str) -> dict[tuple[str, str], Option]:
    """Every option of a preset, mechanism or transform, by part and key."""
    return {
        (part.kind.name, name): option
        for part in parts_of(named(of).composition)
        for name, option in part.options.items()
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
        assert str(properties[field.name]).count("'description'") == 1 or field.name in NESTED


def as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", PRESETS)
def test_a_default_that_is_told_is_what_the_parser_takes(name: str) -> None:
    known, schema = example(name), SCHEMAS[name]
    plain = resolve_embedding(known)
    assert set(schema["required"]) == known.keys()
    told = options_of(name)
    assert {key for _, key in told} == schema["properties"].keys() - {"type"}
    for (_, key), option in told.items():
        if option.default is not NONE:
            described = {**known, key: option.default}
            assert schema["properties"][key].get("default") == as_json(option.default)
            assert resolve_embedding(described) == plain, key


def test_what_a_preset_sets_is_a_default() -> None:
    assert options_of("p-rope")["truncate", "p"].default == 0.75
    assert EMBEDDINGS.entry("p-rope").required == []
    assert options_of("truncate")["truncate", "p"].required
    assert options_of("fope-official")["fourier", "below_floor"].default == "official"
    assert options_of("fope")["fourier", "below_floor"].default == "unit"


@pytest.mark.parametrize("name", PRESETS)
def test_an_option_that_parts_share_is_one_option(name: str) -> None:
    told = options_of(name)
    for (_, key), option in told.items():
        assert all(option == other for (_, other_key), other in told.items() if other_key == key)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_computed_from_options_is_what_is_built(name: str) -> None:
    definition = parse_embedding(example(name))
    module = build_embedding(
        example(name),
        **{size: getattr(SHAPE, size) for size in ("head_dim", "num_heads", "num_kv_heads")},
        train_length=SHAPE.train_length,
    )
    learned = sum(parameter.numel() for parameter in module.parameters())
    assert definition.learned_parameters(SHAPE, num_layers=1) == learned
    frequencies = definition.pair_frequencies(SHAPE)
    assert (len(frequencies) > 0) == module.rotates
    if module.inv_freq is not None:
        expected = module.inv_freq
        assert torch.equal(torch.tensor(frequencies, dtype=expected.dtype), expected)


@pytest.mark.parametrize(
    ("name", "pairs"),
    [("rope", 32), ("fope", 16), ("fope-official", 16), ("p-rope", 24), ("alibi", 0)],
)
def test_pairs_that_rotate(name: str, pairs: int) -> None:
    """The sixteenth of fope is the last with a wavelength of at most 512 tokens."""
    assert sum(omega != 0 for omega in parse_embedding(name).pair_frequencies(SHAPE)) == pairs


def test_what_changes_beyond_the_training_length_is_that_of_ntk_there() -> None:
    rope, ntk, dynamic = (parse_embedding(example(name)) for name in ("rope", "ntk", "dynamic-ntk"))
    assert dynamic.pair_frequencies(SHAPE) == rope.pair_frequencies(SHAPE)
    assert dynamic.pair_frequencies(SHAPE, 2048) == ntk.pair_frequencies(SHAPE)
    assert ntk.pair_frequencies(SHAPE, 2048) == ntk.pair_frequencies(SHAPE)
