"""How much work a stage is, and how long it will take, before it runs.

A forecast is the stage's FLOPs at the median rate of the stages in the store that are most like it,
on the same device, in the same precision: of its kind and its model's width; else of its kind (all
trainings are one kind); for evaluations, else of all evaluations, and else of trainings. Where
nothing was measured, it is the FLOPs at an assumed share of the device's peak. Where the FLOPs are
unknown until run, it is the median of stages with the same settings on other models.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from fope_lab.config.devices import (
    CPU,
    Device,
    device_named,
    known_devices,
    recorded_device,
    this_machine,
)
from fope_lab.config.problems import counted
from fope_lab.config.processor import processor
from fope_lab.stages.key import config_json, digest
from fope_lab.stages.training import TrainingConfig
from fope_lab.stages.widths import computed_widths
from fope_lab.store.attempts import WorkTime
from fope_lab.store.root import Store
from fope_lab.sweep.cost import forward_flops
from fope_lab.sweep.graph import Stage

TRAINING, EVALUATION = "training", "evaluation"
"""Families of similar kinds: timings of one kind help to estimate another."""
NOT_SETTINGS = ("from", "embedding", "resources", "batch_tokens", "seed", "tokenizer")
"""Fields that do not change how much work a stage is."""
PREPARING = ("prepare-data", "train-tokenizer", "copy-tokenizer")
"""Kinds that wait for disks and networks or start processes of their own; they count wall time."""
PARALLEL = 0.76
"""The share of a stage's time that all its threads divide. By benchmarks/cpus.py two threads were
1.76 times as fast as one at mini, and 1.46 times at 20m (benchmarks/RESULTS.md); an EPYC with avx2
only gave 1.64 and 1.59. More than two were not measured; for eight, it gives 3.0 times."""
HOUR = 3600.0
OTHER_SIZES = "of other sizes"
SECONDS_WITHOUT_FORECAST = 60.0
"""The time of every stage where nothing is known of any."""


@dataclass(frozen=True)
class Workload:
    """The work of one worker of a stage.

    `family` is TRAINING, EVALUATION or the kind itself. `tokens` and `flops` are what the model
    computes; where they are unknown until run, `tokens` is None and `flops` that of one token.
    `question` is a digest of the stage's settings without the model's, so that stages with the same
    settings on other models can be compared. `share` is the part of a GPU that the worker has, 0 on
    the CPU, and `threads` how many threads it computes with there. `width` is the model's
    hidden_size.
    """

    kind: str
    family: str
    question: str
    precision: str
    share: float
    tokens: int | None
    flops: float | None
    threads: int = 1
    width: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether the FLOPs are known before the stage runs."""
        return self.tokens is not None and bool(self.flops)

    def part(self, share: float) -> Workload:
        """Return a share of the work, as of a training that ended before its last step."""
        return replace(
            self,
            tokens=None if self.tokens is None else round(self.tokens * share),
            flops=None if self.flops is None else self.flops * share,
        )


def workload_of(stage: Stage) -> Workload:
    spec, cost, model = stage.spec, stage.cost, stage.model_spec
    tokens, flops, family, precision = cost.tokens, cost.flops, stage.kind, "float32"
    size = spec.resources.size
    if isinstance(spec, TrainingConfig):
        family, precision = TRAINING, spec.train.precision
        of_batch = sum(width * count for width, count in computed_widths(spec).items())
        tokens = round(spec.train.steps * of_batch)
    elif spec.measures_model:
        family = EVALUATION
    if tokens is None and model is not None:
        length = (spec.max_sequence_length() or ((), model.train_length))[1]
        flops = forward_flops(model.model, length, embedding=model.embedding)
    settings = config_json(spec).items()
    return Workload(
        kind=stage.kind,
        family=family,
        question=digest({name: value for name, value in settings if name not in NOT_SETTINGS}),
        precision=precision,
        share=min(1.0, spec.resources.gpus),
        tokens=None if tokens is None else tokens // size,
        flops=None if flops is None else flops / (size if tokens is not None else 1),
        threads=1 if spec.resources.gpus else spec.resources.threads,
        width=model.model.hidden_size if model else None,
    )


def speed_up(threads: int) -> float:
    """Return the time on one thread over that on `threads` (Amdahl, AFIPS 1967)."""
    return 1 / (1 - PARALLEL + PARALLEL / threads)


@dataclass(frozen=True)
class Timing:
    """The seconds that a workload took."""

    work: Workload
    seconds: float

    @property
    def on_one_thread(self) -> float:
        return self.seconds * speed_up(self.work.threads)


@dataclass(frozen=True)
class Forecast:
    """The seconds of a stage, where they come from, and whether that is an assumption. GPU-hours
    and money are those of the GPUs alone. Numbers are None where they are unknown, and money where
    no price was given."""

    seconds: float | None
    source: str
    assumed: bool = False
    gpu_hours: float | None = None
    cost: float | None = None


CANNOT_RUN = Forecast(None, "cannot run there")
NO_DEVICE = Forecast(None, "unknown: name the GPU with --device")


class Calibration:
    """Estimates the time of any workload from `timings`, the stages measured on each device."""

    def __init__(self, timings: Mapping[str, Iterable[Timing]]) -> None:
        self._timings = {device: list(measured) for device, measured in timings.items()}
        self._medians: dict[tuple[object, ...], tuple[float, str] | None] = {}

    def most_measured(self) -> str | None:
        """Return the name of the GPU with the most measured stages, None if there is none."""
        counts = {name: len(measured) for name, measured in self._timings.items() if name != CPU}
        return max(counts, key=counts.__getitem__, default=None)

    def estimate(self, work: Workload, device: Device) -> Forecast:
        speed, flops = speed_up(work.threads), work.flops or 0.0
        if not work.is_known:
            return self._of_the_same_settings(work, device) or _unmeasured(work, device)
        if (median := self._median_rate(work, device)) is not None:
            per_flop, which = median
            # A larger model is not as slow for each FLOP as a tiny one.
            assumed, source = which.endswith(OTHER_SIZES), f"measured on {device.name}: {which}"
            return Forecast(per_flop * flops / speed, source, assumed)
        rate = device.assumed_rate(work.precision) * (work.share or 1.0)
        return Forecast(flops / rate / speed, device.assumption, assumed=True)

    def _median_rate(self, work: Workload, device: Device) -> tuple[float, str] | None:
        """The median seconds per FLOP on one thread, and the stages it was measured on."""
        alike = (work.precision, work.share)
        key = (device.name, work.kind, work.family, work.width, *alike)
        if key not in self._medians:
            timings = (each for each in self._timings.get(device.name, ()) if each.work.is_known)
            measured = [t for t in timings if (t.work.precision, t.work.share) == alike]
            self._medians[key] = _narrowest(work, measured)
        return self._medians[key]

    def _of_the_same_settings(self, work: Workload, device: Device) -> Forecast | None:
        """Estimate by stages with the same settings on other models, in proportion to the FLOPs."""
        same = [
            timing.on_one_thread * (work.flops or 1.0) / (timing.work.flops or 1.0)
            for timing in self._timings.get(device.name, ())
            if timing.work.question == work.question and timing.work.share == work.share
        ]
        if not same:
            return None
        source = f"measured on {device.name}: {counted(len(same), 'stage')} with the same settings"
        return Forecast(statistics.median(same) / speed_up(work.threads), source)


def _narrowest(work: Workload, measured: Sequence[Timing]) -> tuple[float, str] | None:
    """The median seconds of a FLOP over the stages that are most like `work`, and their words."""
    families = {
        family: [timing for timing in measured if timing.work.family == family]
        for family in (work.family, EVALUATION, TRAINING)
    }
    trains = work.family == TRAINING
    same_kind = [t for t in families[work.family] if trains or t.work.kind == work.kind]
    same_size = [t for t in same_kind if t.work.width == work.width]
    noun = TRAINING if trains else f"{work.kind} stage"
    for alike, counts, words in (
        (same_size, noun, "{}"),
        (same_kind, noun, f"{{}} {OTHER_SIZES}"),
        (families[EVALUATION] * (work.family == EVALUATION), "evaluation", "{} of other kinds"),
        (families[TRAINING], TRAINING, "the rate of {}"),
    ):
        if alike:
            rate = statistics.median(one.on_one_thread / (one.work.flops or 1.0) for one in alike)
            return rate, words.format(counted(len(alike), counts))
    return None


def _unmeasured(work: Workload, device: Device) -> Forecast:
    if work.tokens == 0:
        return Forecast(2.0, "assumed: 2 s for a model that is copied and reads nothing", True)
    reason = f"no stage with these settings was timed on {device.name}"
    if work.family == EVALUATION:
        reason = "the text's size is not known in advance; tokens or limit bounds it"
    elif work.kind in PREPARING:
        reason = "the input's size is not known in advance"
    return Forecast(None, f"unknown until run ({reason})")


def calibrate(store: Store | None) -> Calibration:
    """Learn from the finished stages of a store; without a store, nothing is measured. Skipped are
    stages of another processor than this machine's, and resumed ones that had several workers,
    whose number may have changed, or that are no trainings, and may have begun again."""
    timings: dict[str, list[Timing]] = {}
    for record in store.execution_records() if store else ():
        with contextlib.suppress(KeyError, TypeError):  # a damaged record costs its own stage
            if (measured := _timing(record)) is not None:
                timings.setdefault(measured[0], []).append(measured[1])
    return Calibration(timings)


def _timing(record: Mapping[str, Any]) -> tuple[str, Timing] | None:
    """The device of a finished stage and its time there; None if the record is of no use."""
    known = {field.name for field in fields(Workload)}
    work = Workload(**{name: value for name, value in record["work"].items() if name in known})
    # One worker may be left of several, and earlier attempts may have had more.
    one_process = record["planned_workers"] == 1
    taken = WorkTime(record["seconds"], record["cpu_seconds"])
    if record["resumed"]:
        before = record.get("resumed_time")
        if before is None or not one_process or work.family != TRAINING:
            return None
        taken = WorkTime(**before) + taken
    if record["device"] == CPU:
        if record["processor"] != processor():
            return None
        alone = record["threads"] == 1 and one_process and work.kind not in PREPARING
        return CPU, Timing(work, taken.cpu_seconds if alone else taken.seconds)
    device = record["device"] and recorded_device(record["device"])
    return (device.name, Timing(work, taken.seconds)) if device else None


def forecast(
    stage: Stage, calibration: Calibration, device: Device | None, price: float | None = None
) -> Forecast:
    """Return the forecast of a stage on a device; `price` is that of a GPU for an hour."""
    found = calibration.estimate(workload_of(stage), device) if device else NO_DEVICE
    gpus = stage.spec.resources.gpus
    hours = None if gpus and found.seconds is None else (found.seconds or 0.0) * gpus / HOUR
    cost = None if hours is None or price is None else hours * price
    return replace(found, gpu_hours=hours, cost=cost)


def forecast_seconds(
    stages: Sequence[Stage], store: Store, device: str | None = None
) -> Mapping[str, float | None]:
    """Return the seconds of each stage by key, None if its work is unknown until it runs. `device`
    names the GPUs (default: the most measured, or else the first in devices.yaml, which changes no
    order). Raises SweepError for an unknown device."""
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
