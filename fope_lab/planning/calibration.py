"""Time estimates for stages on a device, learned from the finished stages of a store.

A finished stage records its device and its amount of work (fope_lab/orchestration/trial.py). A
training that was resumed counts with the time of its work in all attempts, without what was lost
and done again; each resume adds its start-up. Skipped are stages without these records, those of
another processor than this machine's, and resumed ones that have several workers, whose number may
have changed, or that are not trainings, and may have begun again. On the CPU with one thread a
stage's time is its processor time, which other stages running beside it do not lengthen. Times on
several threads are learned from, and estimated, as those on one thread by the law of `threads.py`.

An estimate comes from the narrowest group of finished stages that has any, and says which: the same
kind (all trainings are one), all evaluations, the rate of trainings, these groups in the other
precision on a CPU that multiplies in bfloat16, and at last an assumed share of the device's peak.
Where the amount of work is unknown until run, the time is that of stages with the same settings on
other models.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fope_lab.config.problems import counted
from fope_lab.devices import CPU, Device, recorded_device
from fope_lab.planning.bfloat16 import bfloat16_share
from fope_lab.planning.threads import speed_up
from fope_lab.planning.time_model import TimeModel, Timing, fit_time_model
from fope_lab.planning.workload import EVALUATION, TRAINING, Workload
from fope_lab.processor import bfloat16_instruction, is_this_processor
from fope_lab.store import Store
from fope_lab.store.time_taken import WorkTime

PREPARING = ("prepare-data", "train-tokenizer", "copy-tokenizer")
"""Kinds that wait for disks and networks or start processes of their own; they count wall time."""


@dataclass(frozen=True)
class TimeEstimate:
    """The estimated seconds of a stage, None if unknown, the source of the estimate, and whether it
    is an assumption."""

    seconds: float | None
    source: str
    assumed: bool = False


class Calibration:
    """Estimates the time of any workload on any device; each time model is fitted when first
    needed."""

    def __init__(self, timings: Mapping[str, Iterable[Timing]]) -> None:
        """`timings` holds the stages measured on each device, by the device's name."""
        self._timings = {device: list(measured) for device, measured in timings.items()}
        self._time_model = functools.cache(self._fit)

    def estimate(self, work: Workload, device: Device) -> TimeEstimate:
        """Estimate the seconds of `work` on `device`."""
        if not work.is_known:
            return self._of_the_same_settings(work, device) or _unmeasured(work, device)
        return (
            self._measured(work, device)
            or self._in_other_precision(work, device)
            or _assumed(work, device)
        )

    def most_measured(self) -> str | None:
        """The name of the GPU with the most measured stages, None if there is none."""
        counts = {name: len(measured) for name, measured in self._timings.items() if name != CPU}
        return max(counts, key=counts.__getitem__, default=None)

    def _measured(self, work: Workload, device: Device) -> TimeEstimate | None:
        """Estimate by stages in the same precision; None if there are none."""
        rate = _assumed_rate(work, device)
        for group in _groups(work):
            field, value = group.field, group.value
            of = (device.name, field, value, work.precision, work.share)
            model = self._time_model(*of, rate)
            if model is not None:
                stages = group.words.format(counted(model.stages, group.noun))
                seconds = model.seconds(work) / speed_up(work.threads)
                return TimeEstimate(seconds, f"measured on {device.name}: {stages}")
        return None

    def _in_other_precision(self, work: Workload, device: Device) -> TimeEstimate | None:
        """Estimate by stages in the other precision and the model's width; None if there are none,
        or if the device is no CPU with an instruction for bfloat16."""
        if device.name != CPU or work.width is None or not bfloat16_instruction():
            return None
        narrow = work.precision == "bfloat16"
        other = "float32" if narrow else "bfloat16"
        measured = self._measured(replace(work, precision=other), device)
        if measured is None or measured.seconds is None:
            return None
        share = bfloat16_share(work.width)
        seconds = measured.seconds * share if narrow else measured.seconds / share
        source = f"{measured.source} in {other}; {work.precision} by the width of the model"
        return TimeEstimate(seconds, source)

    def _fit(
        self, device: str, field: str, value: str, precision: str, share: float, rate: float
    ) -> TimeModel | None:
        measured = (
            Timing(timing.work, _on_one_thread(timing))
            for timing in self._timings.get(device, ())
            if timing.work.is_known
            and getattr(timing.work, field) == value
            and (timing.work.precision, timing.work.share) == (precision, share)
        )
        return fit_time_model(measured, rate)

    def _of_the_same_settings(self, work: Workload, device: Device) -> TimeEstimate | None:
        """Estimate by stages with the same settings on other models, in proportion to the FLOPs."""
        same = [
            timing
            for timing in self._timings.get(device.name, ())
            if timing.work.question == work.question and timing.work.share == work.share
        ]
        if not same:
            return None
        seconds = statistics.median(
            _on_one_thread(timing) * (work.flops or 1.0) / (timing.work.flops or 1.0)
            for timing in same
        ) / speed_up(work.threads)
        source = f"measured on {device.name}: {counted(len(same), 'stage')} with the same settings"
        return TimeEstimate(seconds, source)


def _assumed_rate(work: Workload, device: Device) -> float:
    return device.assumed_rate(work.precision) * (work.share or 1.0)


def _assumed(work: Workload, device: Device) -> TimeEstimate:
    """The estimate for work of known size of which nothing was measured; without start-up."""
    seconds = (work.flops or 0.0) / _assumed_rate(work, device) / speed_up(work.threads)
    return TimeEstimate(seconds, device.assumption, assumed=True)


def _on_one_thread(timing: Timing) -> float:
    """The seconds that the work would have taken on one thread."""
    return timing.seconds * speed_up(timing.work.threads)


def _unmeasured(work: Workload, device: Device) -> TimeEstimate:
    """The estimate for work of unknown size of which nothing was measured."""
    if work.tokens == 0:
        return READS_NOTHING
    if work.family == EVALUATION:
        return UNKNOWN_TEXT
    if work.kind in PREPARING:
        return UNKNOWN_WORK
    reason = f"no stage with these settings was timed on {device.name}"
    return TimeEstimate(None, f"unknown until run ({reason})")


@dataclass(frozen=True)
class _Group:
    """Finished stages to learn from: those whose workload has this value, and how to call them."""

    field: str
    value: str
    noun: str
    words: str = "{}"


def _groups(work: Workload) -> Iterator[_Group]:
    """The groups to learn from, narrowest first; all trainings are of one kind."""
    if work.family != TRAINING:
        yield _Group("kind", work.kind, f"{work.kind} stage")
    if work.family == EVALUATION:
        yield _Group("family", EVALUATION, "evaluation", "{} of other kinds")
    rate = "{}" if work.family == TRAINING else "the rate of {}"
    yield _Group("family", TRAINING, "training", rate)


READS_NOTHING = TimeEstimate(
    2.0, "assumed: 2 s for a model that is copied and reads nothing", assumed=True
)
UNKNOWN_TEXT = TimeEstimate(
    None, "unknown until run (the text's size is not known in advance; tokens or limit bounds it)"
)
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
    work = Workload(**record["work"])
    taken = _work_time(record, work)
    if taken is None or record["device"] is None:
        return None
    if record["device"] == CPU:
        if not is_this_processor(record["processor"]):
            return None
        alone = record["threads"] == 1 and _is_one_process(record) and work.kind not in PREPARING
        return CPU, Timing(work, taken.cpu_seconds if alone else taken.seconds)
    device = recorded_device(record["device"])
    return None if device is None else (device.name, Timing(work, taken.seconds))


def _work_time(record: Mapping[str, Any], work: Workload) -> WorkTime | None:
    """The time that the work of a finished stage took, over all attempts; None if it is unknown."""
    own = WorkTime(record["seconds"], record["cpu_seconds"])
    if not record["resumed"]:
        return own
    before = record.get("resumed_time")
    if before is None or not _is_one_process(record) or work.family != TRAINING:
        return None
    return WorkTime(**before) + own


def _is_one_process(record: Mapping[str, Any]) -> bool:
    """Whether the process that recorded its CPU seconds did all of the work itself.

    It did not where one worker of several was left, and may not have where earlier attempts had
    more workers than the last one.
    """
    return bool(record.get("planned_workers", record["workers"]) == 1)
