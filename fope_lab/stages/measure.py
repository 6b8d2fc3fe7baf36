"""What a stage measures, as far as its configuration tells: the metrics that it logs."""

from __future__ import annotations

from dataclasses import dataclass

from fope_lab.data.corpora.base import Corpus


@dataclass(frozen=True)
class Measure:
    """One metric of a stage. `name` is what claims call it, `metric` what it is logged as.

    `xs` are the points of a curve, None for a single number; `corpus` is the text that it is of.
    `learnt` is, for the accuracy of a task that a model may fail to learn, the metric that tells
    what it knows inside the trained length: this one at a short x, or another one.
    """

    name: str
    metric: str
    xs: tuple[int, ...] | None = None
    corpus: Corpus | None = None
    learnt: str | None = None


def accuracy_by_length(name: str, metric: str, lengths: tuple[int, ...]) -> Measure:
    """An accuracy at some context lengths; the shorter ones tell whether the task is learned."""
    return Measure(name, metric, tuple(sorted(lengths)), learnt=metric)
