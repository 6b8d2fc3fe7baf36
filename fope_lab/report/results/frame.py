"""The numbers of a sweep as a pandas frame: one row for each number that a stage measured.

The columns are

    stage           the stage's name in the sweep file
    kind            what kind of stage it is
    metric, x       the metric, and the point on its curve, such as the length in tokens; <NA> for a
                    single number and for the numbers beside an analysis's figure
    value           the number
    stderr, ci95_low, ci95_high
                    the standard error and the 95 % interval that the finite evaluation leaves
    n, chance       how many samples the value is the mean of, and what guessing gives
    embedding, scale, trained_length, seed
                    the model's: its embedding and scale as the sweep file names them, the length in
                    tokens that it was last trained at, and the seed
    stage.field     each axis of the sweep, by its path; an embedding with options is a text such as
                    fope(sigma=0.1)
    label, key      the stage's label and key: the same number in the report, MLflow and the store

Whatever is unknown is missing (NaN or <NA>).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fope_lab.report.results.cells import StageResult
from fope_lab.stages.labels import label
from fope_lab.stages.metric import Measurement

if TYPE_CHECKING:
    import pandas as pd

MEASURED = ("value", "stderr", "ci95_low", "ci95_high", "chance")
WHOLE = ("x", "n", "trained_length", "seed")
"""Integer columns that may have gaps."""
FIRST = ("stage", "kind", "metric", "x", "value", "stderr", "ci95_low", "ci95_high", "n", "chance")


def results_frame(results: Sequence[StageResult]) -> pd.DataFrame:
    """The numbers of all finished stages, in the order of the stages.

    `.attrs["unfinished"]` is a mapping from the label of each stage that is not done to its state
    and the reason, so that a frame of half a sweep says that it is one.
    """
    import pandas as pd  # it takes long, and a report that has not changed needs no frame

    axes = dict.fromkeys(axis for result in results for axis in result.stage.axes)
    columns = [*FIRST, "embedding", "scale", "trained_length", "seed", *axes, "label", "key"]
    frame = pd.DataFrame([row for result in results for row in _rows(result)], columns=columns)
    frame = frame.astype(dict.fromkeys(WHOLE, "Int64") | dict.fromkeys(MEASURED, "float64"))
    frame.attrs["unfinished"] = {
        result.stage.label: " – ".join(filter(None, (result.state.status, result.state.reason)))
        for result in results
        if not result.state.is_done
    }
    return frame


def _rows(result: StageResult) -> Iterator[dict[str, Any]]:
    stage = result.stage
    numbers = (Measurement(name=name, value=v) for name, v in result.record.numbers.items())
    for measured in (*result.measurements.values(), *numbers):
        low, high = measured.interval or (None, None)
        yield {
            "stage": stage.section,
            "kind": stage.kind,
            "metric": measured.name,
            "x": measured.x,
            "value": measured.value,
            "stderr": measured.stderr,
            "ci95_low": low,
            "ci95_high": high,
            "n": measured.n,
            "chance": measured.chance,
            "embedding": stage.embedding,
            "scale": stage.scale,
            "trained_length": result.trained_length,
            "seed": stage.seed,
            **{axis: _plain(value) for axis, value in stage.axes.items()},
            "label": stage.label,
            "key": stage.key,
        }


def _plain(value: Any) -> Any:
    """The value of an axis as a frame can group by it."""
    return value if isinstance(value, str | int | float) or value is None else label(value)
