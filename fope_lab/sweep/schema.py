"""The JSON Schema of a sweep file, so that editors complete and check it.

A stage's section may be incomplete, since the grid may set the rest of it: nothing inside one is
required but its kind. What is right here may therefore still be wrong to `load_sweep`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.config.options import Registry, entry_of
from fope_lab.embeddings.spec import FREQUENCY_TRANSFORMS, QUERY_SCALES
from fope_lab.stages.base import FILE_KINDS, STAGE_TYPES, UNTRAINED, Resources
from fope_lab.stages.sections import SECTIONS
from fope_lab.stages.training import TrainSettings
from fope_lab.sweep.sweep_file import ANCHORS, SweepFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAPPINGS: Mapping[str, type[Any]] = {"resources": Resources, "train": TrainSettings}
"""The mappings in a stage's section that several kinds of stages share, by name."""
PARTS: Mapping[str, Registry[Any]] = {
    "transform": FREQUENCY_TRANSFORMS,
    "query_scale": QUERY_SCALES,
}
"""What many embeddings take, by name."""

NOT_TRAINED = {
    "const": UNTRAINED,
    "description": "Take no step: the model only gets another embedding, without data.",
}


def sweep_json_schema() -> dict[str, Any]:
    """The schema; `fope-lab schema` prints it, and sweeps/schema.json holds it."""
    top = entry_of(SweepFile).json_schema()
    stages = top["properties"]["stages"]
    [pattern] = stages["patternProperties"]
    stages["patternProperties"] = {pattern: {"$ref": "#/$defs/stage"}}
    stages["additionalProperties"] = False
    top["patternProperties"] = {f"^{ANCHORS}": True}

    kinds = {name: entry.json_schema() for name, entry in FILE_KINDS.entries.items()}
    sections = {name: schema() for name, schema in SECTIONS.items()}
    mappings = {name: entry_of(kind).json_schema() for name, kind in MAPPINGS.items()}
    mappings |= {name: parts.json_schema() for name, parts in PARTS.items()}
    shared = dict(sorted((sections | mappings).items()))
    for name, schema in kinds.items():
        schema["properties"]["kind"] = True  # checked where the kind is chosen by it
        if STAGE_TYPES.all()[name].untrained is not None:
            schema["properties"]["train"] = {
                "anyOf": [schema["properties"]["train"], NOT_TRAINED],
                "description": "The settings of the training, or none to extend without training.",
            }
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
    kinds = list(FILE_KINDS.all_names())
    what = "What the stage does, which decides its other options."
    return {
        "type": "object",
        "description": "A stage: work of a kind, on data or on the model of another stage.",
        "properties": {"kind": {"description": what, "enum": kinds}},
        "required": ["kind"],
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": {"$ref": f"#/$defs/{kind}"},
            }
            for kind in kinds
        ],
    }


def _referring(schema: Any, shared: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_referring(item, shared) for item in schema]
    if not isinstance(schema, dict):
        return schema
    for name, known in shared.items():
        if known.items() <= schema.items():
            rest = {key: value for key, value in schema.items() if key not in known}
            return {"$ref": f"#/$defs/{name}", **rest}
    if isinstance(schema.get("section"), str):
        rest = {key: value for key, value in schema.items() if key != "section"}
        return {"$ref": f"#/$defs/{schema['section']}", **rest}
    return {key: _referring(value, shared) for key, value in schema.items()}


def _incomplete(schema: Any) -> Any:
    """Nothing is required; a name is enough where options would be needed."""
    if isinstance(schema, list):
        return [_incomplete(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = (key for key, value in schema.items() if key != "required" or isinstance(value, dict))
    result = {key: _incomplete(schema[key]) for key in kept}
    alternatives = result.get("anyOf", ())
    consts = (one.get("properties", {}).get("type", {}).get("const") for one in alternatives)
    types = [name for name in consts if name is not None]
    for one in alternatives:
        if "enum" in one:
            one["enum"] = list(dict.fromkeys([*one["enum"], *types]))
    return result
