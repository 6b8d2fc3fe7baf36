"""The JSON of `fope-lab embeddings --json`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fope_lab.config.options import summary
from fope_lab.embeddings.describe import Description
from fope_lab.embeddings.inspect import Inspection, InspectionRow

SHAPE = ("head_dim", "train_length", "num_heads", "num_kv_heads")


def description_json(description: Description, resolved: Inspection | None) -> dict[str, Any]:
    """One embedding or transform with its options, and its numbers at a shape if there is one."""
    return {
        **_description_entry(description),
        "summary": summary(description.own_parts[0].kind),
        "options": _option_entries(description),
        "resolved": _resolved_entry(resolved),
    }


def survey_json(rows: Iterable[InspectionRow]) -> dict[str, Any]:
    """All embeddings with their numbers at a shape, or the problems that they have there."""
    return {
        "embeddings": [
            {
                **_description_entry(row.description),
                "resolved": _resolved_entry(row.inspection),
                "problems": [str(problem) for problem in row.problems],
            }
            for row in rows
        ]
    }


def _description_entry(description: Description) -> dict[str, Any]:
    return {
        "name": description.name,
        "kind": description.kind,
        "source": description.source,
        "composition": description.composition,
        "required": description.open,
    }


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


def _resolved_entry(resolved: Inspection | None) -> dict[str, Any] | None:
    if resolved is None:
        return None
    return {
        **{name: getattr(resolved.shape, name) for name in SHAPE},
        "pairs_rotating": resolved.rotating,
        "attention_factor": resolved.attention_factor,
        "facts": dict(resolved.facts),
        "learned": {name: list(size) for name, size in resolved.learned.items()},
        "learned_parameters": resolved.parameters,
        "per_layer": resolved.per_layer,
        "frequencies": [
            {
                "length": length,
                "pairs": [
                    {
                        "pair": turn.pair,
                        "frequency": turn.frequency,
                        "wavelength": turn.wavelength,
                        "cycles": turn.cycles,
                    }
                    for turn in turns
                ],
            }
            for length, turns in resolved.turns.items()
        ],
    }
