"""How long stages take on a device, learnt from the finished stages of a store.

A finished stage records its device and its amount of work
(fope_lab/orchestration/execution_record.py). Three sorts of stages are skipped: older ones without
that record, those resumed from an interrupted attempt (they recorded the time of the rest alone),
and those of another processor than this machine's. On the CPU with one thread a stage's time is its
processor time, which other stages running beside it do not lengthen.

What a stage is like is looked for in ever wider groups, and an estimate says in which it was found:
its kind (all trainings are one), all evaluations, the trainings' rate, and at last an assumed part
of the device's peak. Where the work is known only by running, the time is that of stages that asked
the same of other models.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.planning.devices import CPU, Device, processor, recorded_device
from fope_lab.planning.time_model import Law, Taken, fit_law
from fope_lab.planning.workload import EVALUATION, TRAINING, Work
from fope_lab.store import Store

PREPARING = ("prepare-data", "train-tokenizer", "copy-tokenizer")
"""Kinds that wait for disks and networks, or have processes of their own: their time is by the
clock."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of a stage, None if nothing tells, and where they come from."""

    seconds: float | None
    source: str


class Calibration:
    """Estimates for any work on any device; laws are fitted when they are first asked for."""

    def __init__(self, taken: Mapping[str, Iterable[Taken]]) -> None:
        """`taken` are the stages measured on each device, by its name."""
        self._taken = {device: list(found) for device, found in taken.items()}
        self._laws = functools.cache(self._law)

    def estimate(self, work: Work, device: Device) -> Estimate:
        """What `work` takes on `device`."""
        options = KNOWN if work.is_known else UNKNOWN
        found = (option(self, work, device) for option in options)
        return next((one for one in found if one is not None), NOTHING)

    def most_measured(self) -> str | None:
        """The GPU with the most stages measured, None if there is none."""
        counts = {name: len(found) for name, found in self._taken.items() if name != CPU}
        return max(counts, key=counts.__getitem__, default=None)

    def _law(
        self, device: str, group: Callable[[Work], str], name: str, precision: str, share: float
    ) -> Law | None:
        return fit_law(
            one
            for one in self._taken.get(device, ())
            if one.work.is_known
            and group(one.work) == name
            and (one.work.precision, one.work.share) == (precision, share)
        )

    def _of_group(
        self, work: Work, device: Device, group: Callable[[Work], str], name: str
    ) -> Law | None:
        return self._laws(device.name, group, name, work.precision, work.share)

    def of_its_kind(self, work: Work, device: Device) -> Estimate | None:
        """By stages of the same kind; all trainings are one."""
        group = GROUPS.get(work.family, _kind)
        law = self._of_group(work, device, group, group(work))
        if law is None:
            return None
        noun = "training" if work.family == TRAINING else f"{work.kind} stage"
        return Estimate(law.seconds(work), f"measured on {device.name}: {_many(law.stages, noun)}")

    def of_evaluations(self, work: Work, device: Device) -> Estimate | None:
        """By evaluations of other kinds."""
        law = self._of_group(work, device, _family, EVALUATION)
        if law is None or work.family != EVALUATION:
            return None
        source = f"measured on {device.name}: {_many(law.stages, 'evaluation')} of other kinds"
        return Estimate(law.seconds(work), source)

    def of_trainings(self, work: Work, device: Device) -> Estimate | None:
        """By the law of trainings."""
        law = self._of_group(work, device, _family, TRAINING)
        if law is None:
            return None
        source = f"measured on {device.name}: the rate of {_many(law.stages, 'training')}"
        return Estimate(law.seconds(work), source)

    def assumed(self, work: Work, device: Device) -> Estimate | None:
        """By a part of the device's peak; start-up is not counted."""
        rate = device.assumed_rate(work.precision) * (work.share or 1.0)
        return Estimate((work.flops or 0.0) / rate, device.assumption)

    def of_the_same_question(self, work: Work, device: Device) -> Estimate | None:
        """By stages that asked the same of other models, in proportion to the models' FLOPs."""
        same = [
            one
            for one in self._taken.get(device.name, ())
            if one.work.question == work.question and one.work.share == work.share
        ]
        if not same:
            return None
        ratios = [(work.flops or 1.0) / (one.work.flops or 1.0) for one in same]
        seconds = statistics.median(
            one.seconds * ratio for one, ratio in zip(same, ratios, strict=True)
        )
        source = f"measured on {device.name}: {_many(len(same), 'stage')} that asked the same"
        return Estimate(seconds, source)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count > 1)}"


def _kind(work: Work) -> str:
    return work.kind


def _family(work: Work) -> str:
    return work.family


GROUPS: Mapping[str, Callable[[Work], str]] = {TRAINING: _family}
"""What stages of a family are told apart by; the others' by their kind."""
KNOWN = (
    Calibration.of_its_kind,
    Calibration.of_evaluations,
    Calibration.of_trainings,
    Calibration.assumed,
)
"""What is asked, in this order, where the FLOPs are known."""
UNKNOWN = (Calibration.of_the_same_question,)
NOTHING = Estimate(None, "not known: only running tells how much work it is")


def calibrated(store: Store | None) -> Calibration:
    """What the finished stages of a store tell; nothing, if there is no store yet."""
    taken: dict[str, list[Taken]] = {}
    for ran in store.times() if store else ():
        with contextlib.suppress(KeyError, TypeError):  # of a version that knew other things
            found = _taken(ran)
            if found is not None:
                taken.setdefault(found[0], []).append(found[1])
    return Calibration(taken)


def _taken(ran: Mapping[str, Any]) -> tuple[str, Taken] | None:
    """The device of a finished stage and what it took there; None if it tells nothing."""
    if ran["resumed"] or ran["device"] is None:
        return None
    work = Work.from_json(ran["work"])
    if ran["device"] == CPU:
        if ran["processor"] != processor():
            return None
        alone = ran["threads"] == 1 and ran["workers"] == 1 and work.kind not in PREPARING
        return CPU, Taken(work, ran["cpu_seconds"] if alone else ran["seconds"])
    device = recorded_device(ran["device"])
    return None if device is None else (device.name, Taken(work, ran["seconds"]))
