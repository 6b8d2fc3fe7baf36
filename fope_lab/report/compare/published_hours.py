"""The hardware that a paper prints for its trainings, and the hours that one takes on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import MinLen

from fope_lab.config.annotations import Interval
from fope_lab.config.options import Options, PositiveInt
from fope_lab.stages.labels import label
from fope_lab.sweep.graph import Stage

Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class PublishedTraining(Options):
    """The hours of one training; `where` selects it by the short names of axes and their labels."""

    where: dict[str, Text] = field(default_factory=dict)
    hours: Annotated[float, Interval(gt=0)]

    def describes(self, stage: Stage) -> bool:
        """Whether a training of a sweep has the labels of `where` on its axes."""
        labels = {path: label(value) for path, value in stage.axes.items()}
        return all(
            any(path.endswith(f".{name}") and text == wanted for path, text in labels.items())
            for name, wanted in self.where.items()
        )


@dataclass(frozen=True, kw_only=True)
class PublishedHours(Options):
    """What a paper prints of the machine and the time of the trainings of a table or a figure.

    `device` is the name that `plan --device` has for the GPU, if it knows it. `trainings` is empty
    where a paper prints its hardware and no hours.
    """

    place: Text
    hardware: Text
    gpus: PositiveInt
    device: Text | None = None
    trainings: tuple[PublishedTraining, ...] = ()
