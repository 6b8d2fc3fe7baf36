"""A sweep as the store records it for MLflow: its stages, without the need for its file."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from fope_lab.sweep.plan import Plan
from fope_lab.tracking.names import StageOutline, line_names, run_names


@dataclass(frozen=True, kw_only=True)
class Outline:
    """A plan, as far as MLflow shows it."""

    name: str
    description: str
    file: str
    stages: tuple[StageOutline, ...]

    @functools.cached_property
    def names(self) -> Mapping[str, str]:
        """The names of the stages' runs, by key."""
        return run_names(self.stages)

    @functools.cached_property
    def lines(self) -> Mapping[str, str]:
        """The names of the lines that charts draw of the stages with an embedding, by key."""
        return line_names(stage for stage in self.stages if stage.embedding is not None)

    @classmethod
    def of(cls, plan: Plan, cached: Mapping[str, bool]) -> Outline:
        """The outline of a plan; `cached` holds, by key, what was recorded for stages before."""
        sweep = plan.sweep
        own = StageOutline.__dataclass_fields__.keys() - {"curves", "cached"}
        stages = [
            {name: getattr(stage, name) for name in own}
            | {"curves": {m.name: m.axis.name for m in stage.spec.metrics() if m.axis is not None}}
            | {"cached": cached.get(stage.key, plan.states[stage.key].is_done)}
            for stage in sweep.stages
        ]
        raw = {"name": sweep.name, "description": sweep.description, "file": str(sweep.path)}
        return OUTLINE.validate_json(json.dumps(raw | {"stages": stages}))


OUTLINE = TypeAdapter(Outline)
"""Reads an outline from JSON, and raises ValueError for another text."""
