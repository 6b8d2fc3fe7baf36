"""Every setting behind the numbers, by section of the sweep file, from configurations and results.

Configurations are shown whole, so that settings added later are shown too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.report.results.stage_results import StageResult, group_by_section

SHOWN_VALUES = 8


@dataclass(frozen=True)
class SettingsGroup:
    """The settings of one section of the sweep file, over all its combinations.

    Each setting is the path of a field and its value, or its values.
    """

    section: str
    count: int
    requested: tuple[tuple[str, str], ...]  # from the sweep file
    recorded: tuple[tuple[str, str], ...]  # from the results, if they differ


def collect_settings(results: Iterable[StageResult]) -> tuple[SettingsGroup, ...]:
    """Collect the settings of each section of the sweep file, in its order."""
    groups = []
    for section, members in group_by_section(results).items():
        requested = _merge([result.stage.config for result in members])
        recorded = _merge(
            [r.stage.spec.recorded_in_words(r.record.recorded) for r in members if r.state.is_done]
        )
        new = tuple(pair for pair in recorded if pair not in requested)
        groups.append(SettingsGroup(section, len(members), requested, new))
    return tuple(groups)


def _merge(settings: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Merge settings by path: the common value, or a description of the values that occur."""
    values: dict[str, list[Any]] = {}
    for mapping in filter(None, settings):
        for path, value in flatten(mapping):
            values.setdefault(path, []).append(value)
    total = len(settings)
    return tuple(
        (path, _describe(items) + (f" (in {len(items)} of {total})" if len(items) < total else ""))
        for path, items in values.items()
    )


def flatten(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    """The values of a configuration by the paths of their fields, numbers by length as one."""
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        value = {str(i): item for i, item in enumerate(value)}
    by_length = isinstance(value, Mapping) and all(
        str(key).isdigit() and not isinstance(item, Mapping) for key, item in value.items()
    )
    if isinstance(value, Mapping) and not by_length:
        for key, item in value.items():
            yield from flatten(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _describe(values: Sequence[Any]) -> str:
    texts = list(dict.fromkeys(map(setting_text, values)))
    if len(texts) == 1:
        return texts[0]
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) == len(values) and len(texts) > 3:
        return f"{setting_text(min(numbers))} to {setting_text(max(numbers))}"
    shown = "; ".join(texts[:SHOWN_VALUES])
    rest = len(texts) - SHOWN_VALUES
    return f"differs: {shown}" + (f"; and {rest} more" if rest > 0 else "")


def setting_text(value: Any) -> str:
    """A value of a configuration in words."""
    if isinstance(value, Mapping):  # by length
        texts = {key: setting_text(item) for key, item in value.items()}
        if len(set(texts.values())) == 1:
            return f"{next(iter(texts.values()))} at each length"
        return ", ".join(f"{text} at {key}" for key, text in texts.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(setting_text, value)) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}"
    return "none" if value is None else str(value)
