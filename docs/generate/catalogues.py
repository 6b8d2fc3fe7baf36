"""Tables of what can be named in a sweep: evaluations with their metrics, analyses, model sizes."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from docs.generate.markdown import plain, table
from docs.generate.schema_words import options_table
from fope_lab.analysis.base import ANALYSIS_TYPES
from fope_lab.config.options import entry_of
from fope_lab.stages.base import FILE_KINDS

NEEDS = {"nothing": "nothing", "model": "a model", "text": "a model and a text"}


def analyses(_: str) -> str:
    """A section for each analysis: its figure, what the paper reads off it, and its options."""
    return "\n\n".join(_analysis(name, kind) for name, kind in ANALYSIS_TYPES.all().items())


def _analysis(name: str, kind: type[Any]) -> str:
    facts = f"Source: {plain(kind.source)}. It needs {NEEDS[kind.needs]}."
    parts = [f"## {name}", plain(_summary(kind)), f"{facts} The paper shows: {plain(kind.says)}"]
    if dataclasses.fields(cast(Any, kind)):
        parts.append(options_table(entry_of(kind).json_schema()))
    return "\n\n".join(parts)


def _summary(kind: type[Any]) -> str:
    return " ".join((kind.__doc__ or "").split())


def metrics(_: str) -> str:
    """A table of every metric that the shipped sweeps measure, with the name that claims use."""
    from docs.generate.shipped import load_shipped, sweep_files

    found: dict[str, tuple[str, ...]] = {}
    kinds: dict[str, set[str]] = {}
    for path in sweep_files():
        for stage in load_shipped(path).stages:
            if stage.kind in FILE_KINDS.all_names():
                for metric in stage.spec.metrics():
                    kinds.setdefault(metric.name, set()).add(f"`{stage.kind}`")
                    better = {"lower": "lower", "higher": "higher"}.get(metric.better or "", "–")
                    found[metric.name] = (
                        f"`{metric.name}`",
                        ", ".join(sorted(kinds[metric.name])),
                        f"`{metric.short_name}`",
                        metric.by or "–",
                        better,
                        metric.unit,
                    )
    header = ("metric", "kind of stage", "in claims", "by", "better", "unit")
    return table(header, [found[name] for name in sorted(found)])
