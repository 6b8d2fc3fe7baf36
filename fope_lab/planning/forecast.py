"""The forecast of each stage: seconds, GPU-hours and money, before it runs.

One forecast serves the plan, which prints and sums it, and the controller, which orders and
back-fills the stages by it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fope_lab.devices import Device, device_named, known_devices, this_machine
from fope_lab.planning.calibration import Calibration, TimeEstimate, calibrate
from fope_lab.planning.workload import workload_of
from fope_lab.store import Store
from fope_lab.sweep.graph import Stage

HOUR = 3600.0
NO_DEVICE = TimeEstimate(None, "unknown: name the GPU with --device")
SECONDS_WITHOUT_FORECAST = 60.0
"""The time of every stage where nothing is known of any."""


@dataclass(frozen=True)
class Forecast:
    """Seconds, GPU-hours and money of a stage, None where unknown, where the time comes from, and
    whether that is an assumption.

    Money is that of the GPUs alone, at the price that was given.
    """

    seconds: float | None
    gpu_hours: float | None
    cost: float | None
    source: str
    assumed: bool = False


CANNOT_RUN = Forecast(None, None, None, "cannot run there")


def forecast(
    stage: Stage, calibration: Calibration, device: Device | None, price: float | None = None
) -> Forecast:
    """The forecast of a stage on a device; `price` is that of a GPU for an hour."""
    estimate = calibration.estimate(workload_of(stage), device) if device else NO_DEVICE
    hours: float | None = 0.0
    if gpus := stage.spec.resources.gpus:
        hours = None if estimate.seconds is None else estimate.seconds * gpus / HOUR
    cost = None if hours is None or price is None else hours * price
    return Forecast(estimate.seconds, hours, cost, estimate.source, estimate.assumed)


def forecast_seconds(
    stages: Sequence[Stage], store: Store, device: str | None = None
) -> Mapping[str, float | None]:
    """The seconds of each stage by key, or None for a stage whose work is unknown until it runs.

    `device` names the GPUs (default: the GPU with the most stages measured in the store). Where no
    GPU is known, the times are those of the first GPU in devices.yaml: all are then wrong by about
    the same factor, which changes no order. Raises SweepError for an unknown device.
    """
    calibration = calibrate(store)
    name = device or calibration.most_measured() or next(iter(known_devices()))
    gpu, cpu = device_named(name), this_machine()
    return {
        stage.key: forecast(stage, calibration, gpu if stage.spec.resources.gpus else cpu).seconds
        for stage in stages
    }


def without_gaps(seconds: Mapping[str, float | None]) -> Mapping[str, float]:
    """A number of seconds for each stage; an unknown time counts as the median of the others."""
    known = [value for value in seconds.values() if value is not None]
    typical = statistics.median(known) if known else SECONDS_WITHOUT_FORECAST
    return {key: typical if value is None else value for key, value in seconds.items()}
