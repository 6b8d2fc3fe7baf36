"""Whether models have learned a task that they may fail to learn, within their training length."""

from __future__ import annotations

from collections.abc import Mapping

from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.result import MetricPoint
from fope_lab.sweep.claims.contrast import Seeds
from fope_lab.sweep.claims.selection import Selected


def not_learned(
    models: Mapping[str, Seeds],
    selected: Selected,
    results: Mapping[str, StageResult],
    minimum: float,
) -> str:
    """Which of the models did not learn the task, and why; empty if all did.

    `models` holds the evaluations of each model that have a value, by name and seed. A model has
    learned the task if every seed reaches the `minimum`. `selected` has a `mastery` metric.
    """
    reasons = []
    for name, stages in models.items():
        if not stages:
            continue
        inside, where = _inside({seed: results[s.key] for seed, s in stages.items()}, selected)
        poor = {seed: value for seed, value in inside.items() if not value >= minimum}
        if not inside:
            reasons.append(f"{name}: {where}")
        elif poor:
            # If some seeds never learned the task, the mean says little about the others.
            seed = min(poor, key=lambda seed: poor[seed])
            value = f"{poor[seed]:.3f}" + (f" under seed {seed}" if len(inside) > 1 else "")
            reasons.append(f"{name} has {value} {where}, below the minimum of {minimum:g}")
    return "; ".join(reasons)


def _inside(
    results: Mapping[int | None, StageResult], selected: Selected
) -> tuple[dict[int | None, float], str]:
    """Each seed's accuracy within the training length and where it was measured.

    If a seed has none, no accuracies and the reason.
    """
    inside, where = {}, ""
    for seed, result in results.items():
        point, where = _point_inside(result, selected)
        if point is None or point not in result.measurements:
            return {}, where
        inside[seed] = result.measurements[point].value
    return inside, where


def _point_inside(result: StageResult, selected: Selected) -> tuple[MetricPoint | None, str]:
    """The point that shows whether a model learned the task, and where it is in words.

    That is the metric which the evaluation declares for this, or else the curve's own point at the
    longest x within the training length.
    """
    metric, mastery, length = selected.metric, selected.mastery, result.trained_length
    assert mastery is not None
    if mastery != metric:
        return (mastery.name, None), f"as {mastery.label} within the training length"
    if length is None:
        return None, "the training length is unknown"
    xs = [x for name, x in result.measurements if name == metric.name and x is not None]
    short = [x for x in xs if x <= length]
    if not short:
        return None, f"nothing was measured within the training length {length}"
    return (metric.name, max(short)), f"at {max(short)}, within the training length {length}"
