"""Time estimates for stages on a device, learned from the finished stages of a store.

A finished stage records its device and its amount of work
(fope_lab/orchestration/execution_record.py). Three sorts of stages are skipped: older ones without
that record, those resumed from an interrupted attempt (they recorded the time of the rest alone),
and those of another processor than this machine's. On the CPU with one thread a stage's time is its
processor time, which other stages running beside it do not lengthen.

An estimate comes from the narrowest group of finished stages that has any, and says which: the same
kind (all trainings are one), all evaluations, the rate of trainings, and at last an assumed share
of the device's peak. Where the amount of work is unknown until run, the time is that of stages with
the same settings on other models.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.planning.devices import CPU, Device, processor, recorded_device
from fope_lab.planning.time_model import TimeModel, Timing, fit_time_model
from fope_lab.planning.workload import EVALUATION, TRAINING, Workload
from fope_lab.store import Store

PREPARING = ("prepare-data", "train-tokenizer", "copy-tokenizer")
"""Kinds that wait for disks and networks or start processes of their own; they count wall time."""


@dataclass(frozen=True)
class TimeEstimate:
    """The estimated seconds of a stage, None if unknown, and the source of the estimate."""

    seconds: float | None
    source: str


class Calibration:
    """Estimates the time of any workload on any device; each time model is fitted when first
    needed."""

    def __init__(self, timings: Mapping[str, Iterable[Timing]]) -> None:
        """`timings` holds the stages measured on each device, by the device's name."""
        self._timings = {device: list(measured) for device, measured in timings.items()}
        self._time_model = functools.cache(self._fit)

    def estimate(self, work: Workload, device: Device) -> TimeEstimate:
        """Estimate the seconds of `work` on `device`."""
        options = KNOWN if work.is_known else UNTIL_RUN
        estimates = (option(self, work, device) for option in options)
        return next((estimate for estimate in estimates if estimate is not None), UNKNOWN_WORK)

    def most_measured(self) -> str | None:
        """The name of the GPU with the most measured stages, None if there is none."""
        counts = {name: len(measured) for name, measured in self._timings.items() if name != CPU}
        return max(counts, key=counts.__getitem__, default=None)

    def _fit(
        self, device: str, group: Callable[[Workload], str], name: str, precision: str, share: float
    ) -> TimeModel | None:
        return fit_time_model(
            timing
            for timing in self._timings.get(device, ())
            if timing.work.is_known
            and group(timing.work) == name
            and (timing.work.precision, timing.work.share) == (precision, share)
        )

    def _of_group(
        self, work: Workload, device: Device, group: Callable[[Workload], str], name: str
    ) -> TimeModel | None:
        return self._time_model(device.name, group, name, work.precision, work.share)

    def of_its_kind(self, work: Workload, device: Device) -> TimeEstimate | None:
        """Estimate by stages of the same kind; all trainings count as one kind."""
        group = GROUPS.get(work.family, _kind)
        time_model = self._of_group(work, device, group, group(work))
        if time_model is None:
            return None
        noun = "training" if work.family == TRAINING else f"{work.kind} stage"
        return TimeEstimate(
            time_model.seconds(work), f"measured on {device.name}: {_many(time_model.stages, noun)}"
        )

    def of_evaluations(self, work: Workload, device: Device) -> TimeEstimate | None:
        """Estimate by evaluations of other kinds."""
        time_model = self._of_group(work, device, _family, EVALUATION)
        if time_model is None or work.family != EVALUATION:
            return None
        source = (
            f"measured on {device.name}: {_many(time_model.stages, 'evaluation')} of other kinds"
        )
        return TimeEstimate(time_model.seconds(work), source)

    def of_trainings(self, work: Workload, device: Device) -> TimeEstimate | None:
        """Estimate by the time model of trainings."""
        time_model = self._of_group(work, device, _family, TRAINING)
        if time_model is None:
            return None
        source = f"measured on {device.name}: the rate of {_many(time_model.stages, 'training')}"
        return TimeEstimate(time_model.seconds(work), source)

    def assumed(self, work: Workload, device: Device) -> TimeEstimate | None:
        """Estimate by a share of the device's peak; start-up is not counted."""
        rate = device.assumed_rate(work.precision) * (work.share or 1.0)
        return TimeEstimate((work.flops or 0.0) / rate, device.assumption)

    def of_the_same_settings(self, work: Workload, device: Device) -> TimeEstimate | None:
        """Estimate by stages with the same settings on other models, in proportion to the FLOPs."""
        same = [
            timing
            for timing in self._timings.get(device.name, ())
            if timing.work.question == work.question and timing.work.share == work.share
        ]
        if not same:
            return None
        seconds = statistics.median(
            timing.seconds * (work.flops or 1.0) / (timing.work.flops or 1.0) for timing in same
        )
        source = f"measured on {device.name}: {_many(len(same), 'stage')} with the same settings"
        return TimeEstimate(seconds, source)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count > 1)}"


def _kind(work: Workload) -> str:
    return work.kind


def _family(work: Workload) -> str:
    return work.family


GROUPS: Mapping[str, Callable[[Workload], str]] = {TRAINING: _family}
"""How stages are grouped, by family; stages of other families are grouped by kind."""
KNOWN = (
    Calibration.of_its_kind,
    Calibration.of_evaluations,
    Calibration.of_trainings,
    Calibration.assumed,
)
"""The estimates to try, in this order, where the FLOPs are known."""
UNTIL_RUN = (Calibration.of_the_same_settings,)
UNKNOWN_WORK = TimeEstimate(None, "unknown until run (the input's size is not known in advance)")


def calibrate(store: Store | None) -> Calibration:
    """Learn from the finished stages of a store; without a store, nothing is measured."""
    timings: dict[str, list[Timing]] = {}
    for record in store.execution_records() if store else ():
        with contextlib.suppress(KeyError, TypeError):  # a record of an older version
            measured = _timing(record)
            if measured is not None:
                timings.setdefault(measured[0], []).append(measured[1])
    return Calibration(timings)


def _timing(record: Mapping[str, Any]) -> tuple[str, Timing] | None:
    """The device of a finished stage and its time there; None if the record is of no use."""
    if record["resumed"] or record["device"] is None:
        return None
    work = Workload.from_json(record["work"])
    if record["device"] == CPU:
        if record["processor"] != processor():
            return None
        alone = record["threads"] == 1 and record["workers"] == 1 and work.kind not in PREPARING
        return CPU, Timing(work, record["cpu_seconds"] if alone else record["seconds"])
    device = recorded_device(record["device"])
    return None if device is None else (device.name, Timing(work, record["seconds"]))
