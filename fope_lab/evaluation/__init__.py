"""The evaluations: one file, or one folder, for each kind of stage that measures something.

A file holds a frozen dataclass of options, which a section of a sweep file fills, with `metrics()`
and `run(context)`. `STAGE_TYPES` (stages/base.py) finds every file here. Importing this package and
its evaluations imports no torch: `run` does. An evaluation of one's own needs the names below.
"""

from __future__ import annotations

from fope_lab.evaluation.base import Evaluation, LengthsOption, ModelEvaluation, PromptedEvaluation
from fope_lab.stages.base import ForwardPass
from fope_lab.stages.metric import LENGTH, Measurement, Metric
from fope_lab.statistics.intervals import error_of_mean, mean_and_error, wilson_interval

__all__ = [
    "LENGTH",
    "Evaluation",
    "ForwardPass",
    "LengthsOption",
    "Measurement",
    "Metric",
    "ModelEvaluation",
    "PromptedEvaluation",
    "error_of_mean",
    "mean_and_error",
    "wilson_interval",
]
