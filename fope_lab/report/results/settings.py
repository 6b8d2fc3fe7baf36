"""Every setting behind the numbers, by stage of the sweep file, from configurations and results.

Configurations are shown whole, so that a setting that is added later is shown too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.report.results.stage_results import StageResult

SHOWN_VALUES = 8


@dataclass(frozen=True)
class SettingsGroup:
    """The settings of one stage of the sweep file, over all its combinations."""

    stage: str
    count: int
    asked: tuple[tuple[str, str], ...]  # (field's path, value or values)
    recorded: tuple[tuple[str, str], ...]  # what the finished stages say of themselves


def collect_settings(readings: Iterable[StageResult]) -> tuple[SettingsGroup, ...]:
    """One group for each stage of the sweep file, in its order."""
    groups: dict[str, list[StageResult]] = {}
    for reading in readings:
        groups.setdefault(reading.stage.section, []).append(reading)
    return tuple(_group(stage, group) for stage, group in groups.items())


def _group(stage: str, group: Sequence[StageResult]) -> SettingsGroup:
    asked = _merge([r.stage.config for r in group])
    recorded = _merge([r.record.recorded for r in group if r.state.is_done])
    return SettingsGroup(
        stage=stage,
        count=len(group),
        asked=asked,
        recorded=tuple(pair for pair in recorded if pair not in asked),
    )


def _merge(settings: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Path → the value that all have, or the values that occur."""
    values: dict[str, list[Any]] = {}
    for mapping in filter(None, settings):
        for path, value in _flatten(mapping):
            values.setdefault(path, []).append(value)
    total = len(settings)
    return tuple(
        (path, _describe(found) + (f" (in {len(found)} of {total})" if len(found) < total else ""))
        for path, found in values.items()
    )


def _flatten(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        value = {str(i): item for i, item in enumerate(value)}
    by_length = isinstance(value, Mapping) and all(
        str(key).isdigit() and not isinstance(item, Mapping) for key, item in value.items()
    )
    if isinstance(value, Mapping) and not by_length:
        for key, item in value.items():
            yield from _flatten(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _describe(values: Sequence[Any]) -> str:
    texts = list(dict.fromkeys(map(_text, values)))
    if len(texts) == 1:
        return texts[0]
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) == len(values) and len(texts) > 3:
        return f"{_text(min(numbers))} to {_text(max(numbers))}"
    shown = "; ".join(texts[:SHOWN_VALUES])
    rest = len(texts) - SHOWN_VALUES
    return f"differs: {shown}" + (f"; and {rest} more" if rest > 0 else "")


def _text(value: Any) -> str:
    if isinstance(value, Mapping):  # by length
        texts = {key: _text(item) for key, item in value.items()}
        if len(set(texts.values())) == 1:
            return f"{next(iter(texts.values()))} at each length"
        return ", ".join(f"{text} at {key}" for key, text in texts.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}"
    return "none" if value is None else str(value)
