"""The JSON of `fope-lab embeddings --json`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fope_lab.config.options import summary
from fope_lab.embeddings.describe import Description, Inspection, InspectionRow

SHAPE = ("head_dim", "train_length", "num_heads", "num_kv_heads")
PAIR = ("pair", "frequency", "wavelength", "cycles")


def description_json(description: Description, inspection: Inspection | None) -> dict[str, Any]:
    """One embedding or transform with its options, and its numbers at a shape if there is one."""
    return {
        **_description_entry(description),
        "summary": summary(description.own_parts[0].kind),
        "options": _option_entries(description),
        "resolved": _inspection_entry(inspection),
    }


def table_json(rows: Iterable[InspectionRow]) -> dict[str, Any]:
    """All embeddings with their numbers at a shape, or the problems that they have there."""
    return {
        "embeddings": [
            {
                **_description_entry(row.description),
                "resolved": _inspection_entry(row.inspection),
                "problems": [str(problem) for problem in row.problems],
            }
            for row in rows
        ]
    }


def _description_entry(description: Description) -> dict[str, Any]:
    names = ("name", "kind", "source", "composition")
    entry = {name: getattr(description, name) for name in names}
    return {**entry, "required": description.open}


def _option_entries(description: Description) -> list[dict[str, Any]]:
    return [
        {
            "part": part.name,
            "option": name,
            "meaning": option.doc,
            "allowed": {k: v for k, v in option.json_schema().items() if k != "description"},
            "required": option.required,
            **({} if option.required else {"default": option.default}),
            **({"value": part.chosen[name]} if name in part.chosen else {}),
        }
        for part in description.own_parts
        for name, option in part.options().items()
    ]


def _inspection_entry(inspection: Inspection | None) -> dict[str, Any] | None:
    if inspection is None:
        return None
    return {
        **{name: getattr(inspection.shape, name) for name in SHAPE},
        "pairs_rotating": inspection.rotating,
        "attention_factor": inspection.attention_factor,
        "facts": dict(inspection.facts),
        "learned": {name: list(size) for name, size in inspection.learned.items()},
        "learned_parameters": inspection.parameters,
        "per_layer": inspection.per_layer,
        "frequencies": [
            {
                "length": length,
                "pairs": [{name: getattr(turn, name) for name in PAIR} for turn in turns],
            }
            for length, turns in inspection.turns.items()
        ],
    }
