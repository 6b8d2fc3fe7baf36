"""What a metric's name says of it, for results that are older than the declarations of metrics.

A stage declares its metrics (stages/metric.py), and what it declares is never read off a name.
Results that were written before stages did so have the names alone.

`perplexity_by_length` is a curve over the context length; a metric without `_by_` is a single
number. Losses, perplexities, accuracies and scores of benchmarks are results; whatever else a stage
logs (learning rate, throughput, gradient norm) describes how it ran, and stays in MLflow.
"""

from __future__ import annotations

from fope_lab.stages.metric import CURVE_AXES, Better, CurveAxis, Metric, Unit

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


def metric_named(name: str) -> Metric | None:
    """The metric of a name; None for a number that describes the run, such as a learning rate."""
    if metric_of_stderr(name):
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


def metric_of_stderr(name: str) -> str | None:
    """The metric that `NAME_stderr` belongs to; None for another name."""
    return name.removesuffix(_ERROR) if name.endswith(_ERROR) else None
