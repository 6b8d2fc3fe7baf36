"""What a metric's name alone says of it, by the convention that all metrics keep.

A stage declares its metrics (stages/metric.py). A name alone is all there is in a paper's file, and
in results that were written before stages declared theirs.

`perplexity_by_length` is a curve over the context length; a metric without `_by_` is a single
number. Losses, perplexities, accuracies and scores of benchmarks are results; whatever else a stage
logs (learning rate, throughput, gradient norm) describes how it ran, and stays in MLflow.
"""

from __future__ import annotations

from fope_lab.stages.metric import CURVE_AXES, Better, CurveAxis, Metric, Unit
from fope_lab.sweep.graph import Stage

# The first ending (or beginning) that fits decides.
_ENDINGS: tuple[tuple[str, Better, Unit], ...] = (
    ("perplexity", "lower", "perplexity"),
    ("perplexity_ratio", "lower", "ratio"),
    ("loss", "lower", "nats"),
    ("accuracy", "higher", "fraction"),
)
_BEGINNINGS: tuple[tuple[str, Better, Unit], ...] = (
    ("longbench_", "higher", "percent"),
    ("leval_", "higher", "percent"),
)
_SHOWN_AS = {f"loss_by_{x}": f"perplexity_by_{x}" for x in ("length", "position")}
_ERROR = "_stderr"


def metric_of(stage: Stage, name: str) -> Metric | None:
    """The metric that a stage logs under a name; None if it is no result."""
    declared = next((metric for metric in stage.spec.metrics() if metric.name == name), None)
    return declared or metric_named(name)


def metric_named(name: str) -> Metric | None:
    """The metric of a name; None if it is no result's."""
    if with_error(name):
        return None
    base, _, ending = name.partition("_by_")
    known = next((kind for kind in _ENDINGS if base.endswith(kind[0])), None)
    known = known or next((kind for kind in _BEGINNINGS if base.startswith(kind[0])), None)
    if known is None and not ending:
        return None
    _, better, unit = known or ("", None, "number")
    return Metric(
        name=name,
        short_name=base,
        better=better,
        unit=unit,
        axis=CURVE_AXES.get(ending, CurveAxis(ending, ending, in_tokens=False)) if ending else None,
        shown_as=_SHOWN_AS.get(name),
    )


def with_error(name: str) -> str | None:
    """The metric whose standard error `name` is; None if it is none."""
    return name.removesuffix(_ERROR) if name.endswith(_ERROR) else None
