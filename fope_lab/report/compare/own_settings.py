"""Whether methods are compared each at its own best learning rate, or all at one, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.report.results.stage_results import StageResult, chosen_keys
from fope_lab.stages import Select, TrainingConfig
from fope_lab.stages.labels import label

RATE = "learning_rate"
PENDING = "not chosen yet"
OPTIMISTIC = (
    "The validation loss of a model that select chose is optimistic, being the least of several;"
    " numbers for it are those of evaluations, on text that the selection did not read."
)
"""What is said wherever the validation loss of a chosen model is shown."""


def own_settings_notes(group: MetricGroup, results: Mapping[str, StageResult]) -> tuple[str, ...]:
    """What a table says of the learning rates and chosen settings behind its rows.

    `results` are those of all stages, by key. A group in which no two embeddings are compared has
    none.
    """
    if len({cell.embedding for cell in group.cells}) < 2:
        return ()
    chosen: dict[tuple[str, str], dict[str, str]] = {}
    candidates: dict[tuple[str, str], dict[str, int]] = {}
    rates: dict[str, set[Any]] = {}
    selected: set[str] = set()
    for series in group.series:
        for result in _models(series, results):
            spec = result.stage.spec
            if isinstance(spec, Select):
                section = next(iter(_candidates(result, results)), result).stage.section
                value = result.choice
                text = PENDING if value is None else label(value)
                rule, name = (spec.over, spec.by), _name(series)
                chosen.setdefault(rule, {})[name] = text
                candidates.setdefault(rule, {})[name] = len(spec.values)
                if spec.over.rpartition(".")[2] == RATE:
                    selected.add(section)
            elif isinstance(spec, TrainingConfig):
                rates.setdefault(result.stage.section, set()).add(spec.train.learning_rate)
    notes = [
        f"Each at its own best {over.rpartition('.')[2].replace('_', ' ')},"
        f" chosen by {by.replace('_', ' ')}:"
        f" {', '.join(f'{name} {value}' for name, value in values.items())}."
        for (over, by), values in chosen.items()
    ]
    notes += [
        f"Not all had as many candidates: {', '.join(f'{name} {n}' for name, n in of.items())}."
        for of in candidates.values()
        if len(set(of.values())) > 1
    ]
    one = {name: min(of) for name, of in rates.items() if len(of) == 1 and name not in selected}
    if one:
        several = len(rates) > 1
        parts = [f"{label(rate)}{f' ({name})' * several}" for name, rate in one.items()]
        notes.append(f"All at learning rate {' and '.join(parts)}; not each at its best.")
    own = chosen_keys(results.values()).intersection(key for c in group.cells for key in c.keys)
    if own and group.metric.name.endswith("validation_loss"):
        notes.append(OPTIMISTIC)
    return tuple(notes)


def _models(series: Series, results: Mapping[str, StageResult]) -> Iterator[StageResult]:
    """The stages behind a series' models under its first seed, the nearest first."""
    key: str | None = next(iter(series.cells.values())).keys[0]
    while key is not None and key in results:
        yield results[key]
        key = results[key].model_parent


def _candidates(result: StageResult, results: Mapping[str, StageResult]) -> list[StageResult]:
    return [results[key] for key in result.stage.parents.values() if key in results]


def _name(series: Series) -> str:
    return f"{series.label} ({series.panel})" if series.panel else series.label
