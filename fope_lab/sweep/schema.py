"""The JSON Schema of a sweep file, so that editors complete and check it.

A stage's section may be incomplete, since the grid may set the rest of it: nothing inside one is
required but its kind. What is right here may therefore still be wrong to `load_sweep`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fope_lab.analysis import analysis_json_schema
from fope_lab.config.options import entry_of
from fope_lab.data.corpora.registry import corpus_json_schema
from fope_lab.data.recipe import data_json_schema
from fope_lab.data.tokenizers.recipe import tokenizer_json_schema
from fope_lab.embeddings import EMBEDDINGS
from fope_lab.stages import Resources, TrainSettings
from fope_lab.stages.sections import model_json_schema
from fope_lab.sweep.kinds import FILE_KINDS
from fope_lab.sweep.sweep_file import SweepFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SECTIONS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "analyses": analysis_json_schema,
    "data": data_json_schema,
    "corpus": corpus_json_schema,
    "embedding": EMBEDDINGS.json_schema,
    "model": model_json_schema,
    "resources": entry_of(Resources).json_schema,
    "tokenizer": tokenizer_json_schema,
    "train": entry_of(TrainSettings).json_schema,
}
"""The parts of a stage's section that several kinds of stages share, by name."""


def sweep_json_schema() -> dict[str, Any]:
    """The schema; `fope-lab schema` prints it, and sweeps/schema.json holds it."""
    top = entry_of(SweepFile).json_schema()
    stages = top["properties"]["stages"]
    [pattern] = stages["patternProperties"]
    stages["patternProperties"] = {pattern: {"$ref": "#/$defs/stage"}}
    stages["additionalProperties"] = False

    shared = {name: schema() for name, schema in SECTIONS.items()}
    kinds = {name: _kind_schema(name) for name in FILE_KINDS.all_names()}
    assert not kinds.keys() & shared.keys()
    references = {
        name: _incomplete(_referring(schema, {n: s for n, s in shared.items() if n != name}))
        for name, schema in {**kinds, **shared}.items()
    }
    return {
        "$schema": DIALECT,
        "title": "A sweep of fope-lab",
        **top,
        "$defs": {"stage": _stage_schema(), **references},
    }


def _stage_schema() -> dict[str, Any]:
    """A stage's section, which follows the schema of its kind."""
    return {
        "type": "object",
        "description": "A stage: work of a kind, on data or on the model of another stage.",
        "properties": {
            "kind": {
                "description": "What the stage does, which decides its other options.",
                "enum": list(FILE_KINDS.all_names()),
            }
        },
        "required": ["kind"],
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": {"$ref": f"#/$defs/{kind}"},
            }
            for kind in FILE_KINDS.all_names()
        ],
    }


def _kind_schema(name: str) -> dict[str, Any]:
    """The schema of a kind's section."""
    schema = FILE_KINDS.entry(name).json_schema()
    schema["properties"]["kind"] = True  # checked where the kind is chosen by it
    return schema


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
