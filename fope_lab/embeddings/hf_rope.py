"""How a config.json of Hugging Face's transformers describes a rotation.

Each transform and mechanism writes and reads its own parameters (`to_hf`, `from_hf`) in the form
that transformers 5 has in modeling_rope_utils.py. This module uses the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

BESIDE = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
"""The parameters that earlier versions of transformers have beside `rope_scaling`."""


@dataclass(frozen=True, kw_only=True)
class HfRope:
    """The `rope_parameters` of a config.json, and its `max_position_embeddings` in tokens."""

    parameters: Mapping[str, Any]
    max_length: int

    @classmethod
    def of_config(cls, fields: Mapping[str, Any]) -> HfRope:
        """The rotation of a config.json in either spelling.

        Transformers 5 has all parameters in `rope_parameters`. Earlier versions have `rope_theta`
        beside `rope_scaling`, which wins over `rope_parameters` where a file has both.
        """
        beside = {name: fields[name] for name in BESIDE if name in fields}
        inside = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
        parameters = {"rope_theta": 10_000.0, **beside, **inside}
        if "original_max_position_embeddings" in beside:  # it wins in transformers, too
            name = "original_max_position_embeddings"
            parameters[name] = beside[name]
        return cls(parameters=parameters, max_length=fields["max_position_embeddings"])

    @property
    def rope_type(self) -> Any:
        """The name of the scaling as the file has it; "default" where it has none."""
        return self.parameters.get("rope_type", self.parameters.get("type", "default"))

    @property
    def original_length(self) -> int:
        """The tokens that a scaling starts from: the given ones, or `max_length`."""
        return self.parameters.get("original_max_position_embeddings") or self.max_length

    def updated(self, **parameters: Any) -> HfRope:
        """This rotation with the given parameters in place of its own."""
        return replace(self, parameters={**self.parameters, **parameters})
