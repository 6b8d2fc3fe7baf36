"""The JSON Schema of sweep files against load_sweep and against the shipped sweeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from shipped import sweep_of
from sweep_files import BASE, changed, load

from fope_lab.config.yaml_document import Document
from fope_lab.stages.base import FILE_KINDS
from fope_lab.sweep.schema import sweep_json_schema

SWEEPS = Path(__file__).parents[2] / "sweeps"
SHIPPED = sorted(SWEEPS.rglob("*.yaml"))


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = sweep_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_committed_schema_is_current() -> None:
    text = json.dumps(sweep_json_schema(), indent=1, ensure_ascii=False) + "\n"
    if (SWEEPS / "schema.json").read_text(encoding="utf-8") != text:  # the difference is too long
        pytest.fail("sweeps/schema.json is out of date: `make schema` rewrites it", pytrace=False)


def test_there_are_shipped_sweeps() -> None:
    assert SWEEPS / "quickstart.yaml" in SHIPPED


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.relative_to(SWEEPS).as_posix())
def test_shipped_sweeps_are_valid(path: Path, validator: Any) -> None:
    validator.validate(Document(path).value)
    assert sweep_of(path).stages


INCOMPLETE: list[dict[str, Any]] = [
    {},
    {"stages.pretrain.model": "tiny"},
    {"stages.pretrain.embedding": "yarn", "grid": {"pretrain.embedding.factor": [2, 4]}},
    {"stages.pretrain.embedding": {"type": "yarn"}, "grid": {"pretrain.embedding.factor": [2]}},
    {"stages.pretrain.data": {"length": 64}, "grid": {"pretrain.data.corpus": ["c4"]}},
    {"stages.pretrain.train": {}, "grid": {"pretrain.train": [BASE["stages"]["extend"]["train"]]}},
    {"stages.pretrain.data.corpus": {"type": "c4", "limit": 5}},
    {"stages.pretrain.data": {"length": 64, "mix": [{"corpus": "c4"}, {"task": "passkey"}]}},
    {
        "stages.pretrain.embedding": {
            "type": "rotary",
            "transforms": ["clip_floor", {"type": "yarn", "factor": 2}],
        }
    },
    {"stages.extend.embedding": None},
    {"stages.passkey.lengths": [], "grid": {"passkey.lengths": [[64]]}}
    | {"stages.passkey": {"kind": "passkey", "from": "pretrain", "form": "symbolic"}},
    {"seeds": [0, 5], "zip": {"pretrain.embedding": ["rope"]}, "exclude": [], "include": []},
]


@pytest.mark.parametrize("changes", INCOMPLETE)
def test_what_load_sweep_takes_is_valid(
    tmp_path: Path, validator: Any, changes: dict[str, Any]
) -> None:
    content = changed(BASE, changes)
    load(tmp_path, content)
    validator.validate(content)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("nam", "x"),
        ("seeds", [-1]),
        ("grid", {"pretrain.embedding": "rope"}),
        ("include", [3]),
        ("stages", {}),
        ("stages", {"a.b": BASE["stages"]["pretrain"]}),
        ("stages.pretrain.kind", "pretrian"),
        ("stages.pretrain", {"model": "tiny"}),
        ("stages.pretrain.seed", 3),
        ("stages.pretrain.embedding", "rop"),
        ("stages.pretrain.embedding", {"type": "nope", "base": 3}),
        ("stages.pretrain.embedding", {"type": "rope", "base": 0.5}),
        ("stages.pretrain.model", {"num_layer": 3}),
        ("stages.pretrain.data", {"corpus": "c4", "length": 0}),
        ("stages.pretrain.train.tokens", "many"),
        ("stages.pretrain.resources", {"gpu": 1}),
        ("stages.perplexity.from", 3),
        ("stages.perplexity.method", "slide"),
        ("stages.passkey.corpus", "c4"),
    ],
)
def test_what_is_invalid_load_sweep_refuses_too(
    tmp_path: Path, validator: Any, path: str, value: Any
) -> None:
    content = changed(BASE, {path: value})
    assert not validator.is_valid(content)
    with pytest.raises(Exception, match=r"sweep\.yaml"):
        load(tmp_path, content)


def test_every_kind_and_every_reference_is_defined() -> None:
    schema = sweep_json_schema()
    assert set(FILE_KINDS.all_names()) < schema["$defs"].keys()
    text = json.dumps(schema)
    for part in text.split('"#/$defs/')[1:]:
        assert part.partition('"')[0] in schema["$defs"]
    assert '"section"' not in text


def test_every_option_says_what_it_means() -> None:
    """But names of types, and options that refer to a section, which says what it means itself."""
    options = dict(_options(sweep_json_schema()))
    assert len(options) > 200
    for path, option in options.items():
        itself = isinstance(option, dict) and "const" not in option and "$ref" not in str(option)
        assert not itself or option.get("description"), path
    said = set(_descriptions(sweep_json_schema()))
    assert [text for text in said if not text.endswith(".")] == []  # each is a whole sentence


def _descriptions(schema: Any) -> Iterator[str]:
    is_mapping = isinstance(schema, dict)
    if is_mapping and isinstance(schema.get("description"), str):
        yield schema["description"]
    for item in schema.values() if is_mapping else schema if isinstance(schema, list) else ():
        yield from _descriptions(item)


def _options(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    items = schema.items() if isinstance(schema, dict) else enumerate(schema)
    for name, item in items:
        if name == "properties" and path[-1:] != ("properties",):
            yield from (((*path, option), about) for option, about in item.items())
        if isinstance(item, dict | list):
            yield from _options(item, (*path, str(name)))
