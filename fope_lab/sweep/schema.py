"""The JSON Schema of a sweep file, so that editors complete and check it.

A stage's section may be incomplete, since the grid may set the rest of it: nothing inside one is
required but its kind. What is right here may therefore still be wrong to `load_sweep`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fope_lab.analysis import analysis_json_schema
from fope_lab.data.corpora.registry import corpus_json_schema
from fope_lab.data.recipe import data_json_schema
from fope_lab.data.tokenizers.recipe import tokenizer_json_schema
from fope_lab.embeddings import EMBEDDINGS
from fope_lab.stages import StageConfig
from fope_lab.stages.model_section import model_json_schema
from fope_lab.sweep.kinds import FILE_KINDS, KINDS
from fope_lab.sweep.sweep_file import SweepFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


SECTIONS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "analyses": analysis_json_schema,
    "data": data_json_schema,
    "corpus": corpus_json_schema,
    "embedding": EMBEDDINGS.json_schema,
    "model": model_json_schema,
    "tokenizer": tokenizer_json_schema,
}
"""Sections that the stages' configurations leave to other packages (see stages/sections.py)."""


def sweep_json_schema() -> dict[str, Any]:
    """The schema; `fope-lab schema` prints it, and sweeps/schema.json holds it."""
    top = SweepFile.model_json_schema()
    stages = top["properties"]["stages"]
    [pattern] = stages["patternProperties"]
    stages["patternProperties"] = {pattern: {"$ref": "#/$defs/stage"}}
    stages["additionalProperties"] = False

    shared: dict[str, Any] = {name: schema() for name, schema in SECTIONS.items()}
    definitions: dict[str, Any] = top.pop("$defs")
    for kind in FILE_KINDS:
        schema = _kind_schema(KINDS[kind])
        definitions |= schema.pop("$defs")
        definitions[kind] = schema
    assert not definitions.keys() & shared.keys()
    definitions |= shared
    references = {
        name: _incomplete(_referring(schema, {n: s for n, s in shared.items() if n != name}))
        for name, schema in definitions.items()
    }
    return _without_titles(
        {
            "$schema": DIALECT,
            **top,
            "$defs": {"stage": _stage_schema(), **references},
        }
    ) | {"title": "A sweep of fope-lab"}


def _stage_schema() -> dict[str, Any]:
    """A stage's section: which schema it follows, its kind says."""
    return {
        "type": "object",
        "description": "one kind of work, from data or from the model of another stage",
        "properties": {"kind": {"enum": FILE_KINDS}},
        "required": ["kind"],
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": {"$ref": f"#/$defs/{kind}"},
            }
            for kind in FILE_KINDS
        ],
    }


def _kind_schema(kind: type[StageConfig]) -> dict[str, Any]:
    """The schema of a kind's section, with what it refers to in its `$defs`."""
    schema = kind.model_json_schema()
    fields = schema["properties"]
    for name in kind.outside_file:
        del fields[name]
    fields["kind"] = True  # checked where the kind is chosen by it
    return {"$defs": {}, **schema}


def _referring(schema: Any, shared: Mapping[str, Any]) -> Any:
    """The schema with references to the shared ones, where it names or repeats one."""
    if isinstance(schema, list):
        return [_referring(item, shared) for item in schema]
    if not isinstance(schema, dict):
        return schema
    for name, known in shared.items():
        if schema == known:
            return {"$ref": f"#/$defs/{name}"}
    if isinstance(schema.get("section"), str):
        rest = {key: value for key, value in schema.items() if key != "section"}
        return {"$ref": f"#/$defs/{schema['section']}", **rest}
    return {key: _referring(value, shared) for key, value in schema.items()}


def _incomplete(schema: Any) -> Any:
    """The schema without required fields; a name alone is enough where options would be needed."""
    if isinstance(schema, list):
        return [_incomplete(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: _incomplete(value)
        for key, value in schema.items()
        if not (key == "required" and isinstance(value, list))
    }
    if "anyOf" in result:
        result["anyOf"] = _with_all_names(result["anyOf"])
    return result


def _with_all_names(alternatives: list[Any]) -> list[Any]:
    """Alternatives of which one lists names: with the types of all others among them."""
    types = [
        one["properties"]["type"]["const"]
        for one in alternatives
        if "const" in one.get("properties", {}).get("type", {})
    ]
    return [
        {**one, "enum": list(dict.fromkeys([*one["enum"], *types]))} if "enum" in one else one
        for one in alternatives
    ]


def _without_titles(schema: Any) -> Any:
    """Without pydantic's titles, which repeat the names of the fields."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }
