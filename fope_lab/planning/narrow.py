"""What training in bfloat16 saves or costs on this machine's processor and on GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fope_lab.planning.bfloat16 import bfloat16_share
from fope_lab.planning.forecast import Forecast
from fope_lab.processor import bfloat16_instruction
from fope_lab.stages import TrainingConfig
from fope_lab.sweep.graph import Stage


@dataclass(frozen=True)
class Saving:
    """What bfloat16 saves: the trainings, their seconds in float32, and how many fewer in
    bfloat16."""

    trainings: int
    seconds: float
    saved: float


def emulated(stages: Iterable[Stage]) -> int:
    """How many trainings among `stages` use bfloat16 on a CPU that has no instruction for it.

    PyTorch then computes each product in a slow way, several times as long as in float32. There are
    none where it is not known whether the processor has one.
    """
    if bfloat16_instruction() != "":
        return 0
    return sum(spec.train.precision == "bfloat16" for spec in _trainings(stages, gpus=False))


def wide_on_gpus(stages: Iterable[Stage]) -> int:
    """How many trainings among `stages` use float32 on a GPU."""
    return sum(spec.train.precision == "float32" for spec in _trainings(stages, gpus=True))


def _trainings(stages: Iterable[Stage], gpus: bool) -> Iterator[TrainingConfig]:
    specs = (stage.spec for stage in stages)
    return (
        spec
        for spec in specs
        if isinstance(spec, TrainingConfig) and bool(spec.resources.gpus) == gpus
    )


def saving(stages: Iterable[Stage], forecasts: Mapping[str, Forecast]) -> Saving | None:
    """What bfloat16 would save of the trainings among `stages` that use float32 on a CPU.

    None if there are none whose time is known, or if the processor is not known to have such an
    instruction.
    """
    if not bfloat16_instruction():
        return None
    trainings, total, saved = 0, 0.0, 0.0
    for stage in stages:
        spec, seconds = stage.spec, forecasts[stage.key].seconds
        if not isinstance(spec, TrainingConfig) or spec.resources.gpus or seconds is None:
            continue
        if spec.train.precision != "float32" or stage.model_spec is None:
            continue
        trainings += 1
        total += seconds
        saved += seconds * max(0.0, 1 - bfloat16_share(stage.model_spec.model.hidden_size))
    return Saving(trainings, total, saved) if trainings else None
