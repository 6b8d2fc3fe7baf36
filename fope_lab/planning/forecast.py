"""How much work a stage is, and how long it will take, before it runs.

A finished stage records its device and its amount of work (fope_lab/orchestration/trial.py). The
forecast of a stage is its FLOPs at the median rate of the stages in the store that are most like
it, on the same device, in the same precision: of its kind and its model's width; else of its kind
(all trainings are one kind); for evaluations, else of all evaluations, and else of trainings. The
plan says which. Where nothing was measured, it is the FLOPs at an assumed share of the device's
peak. Where the FLOPs are unknown until run, it is the median of stages with the same settings on
other models.

One forecast serves the plan, which prints and sums it, and the controller, which orders and
back-fills the stages by it.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fope_lab.config.problems import counted
from fope_lab.devices import (
    CPU,
    Device,
    device_named,
    known_devices,
    recorded_device,
    this_machine,
)
from fope_lab.evaluation.base import ModelEvaluation
from fope_lab.model.config import flops_per_token
from fope_lab.processor import processor
from fope_lab.stages import StageConfig, TrainingConfig
from fope_lab.stages.key import config_json, digest
from fope_lab.store import Store
from fope_lab.store.attempts import WorkTime
from fope_lab.sweep.cost import computed_widths, rows_at_once
from fope_lab.sweep.graph import Stage

TRAINING, EVALUATION = "training", "evaluation"
"""Families of similar kinds: timings of one kind help to estimate another."""
NOT_SETTINGS = ("from", "embedding", "resources", "batch_tokens", "seed", "tokenizer")
"""Fields that do not change how much work a stage is."""
PREPARING = ("prepare-data", "train-tokenizer", "copy-tokenizer")
"""Kinds that wait for disks and networks or start processes of their own; they count wall time."""
PARALLEL = 0.76
"""The share of a stage's time that all its threads divide; the rest, such as many small operations
on short tensors, takes as long on any number. It follows from benchmarks/cpus.py, where two threads
were 1.76 times as fast as one at mini, and 1.46 times at 20m (benchmarks/RESULTS.md); an EPYC with
avx2 only gave 1.64 and 1.59. More than two were not measured; for eight, it gives 3.0 times."""
HOUR = 3600.0
OTHER_SIZES = "of other sizes"
SECONDS_WITHOUT_FORECAST = 60.0
"""The time of every stage where nothing is known of any."""


@dataclass(frozen=True)
class Workload:
    """The work of one worker of a stage.

    `family` is TRAINING, EVALUATION or the kind itself. `batches` counts passes of the model,
    `tokens` and `flops` what they compute; they are None where they are unknown until run,
    and `flops` is then that of one token. `question` is a digest of the stage's settings without
    the model's, so that stages with the same settings on other models can be compared. `share` is
    the part of a GPU that the worker has, 0 on the CPU, and `threads` how many threads it computes
    with there. `width` is the model's hidden_size.
    """

    kind: str
    family: str
    question: str
    embedding: str | None
    precision: str
    share: float
    batches: int | None
    tokens: int | None
    flops: float | None
    threads: int = 1
    width: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether the FLOPs are known before the stage runs."""
        return self.tokens is not None and bool(self.flops)

    def part(self, share: float) -> Workload:
        """A share of the work, as of a training that ended before its last step."""
        return replace(
            self,
            batches=None if self.batches is None else round(self.batches * share),
            tokens=None if self.tokens is None else round(self.tokens * share),
            flops=None if self.flops is None else self.flops * share,
        )


def workload_of(stage: Stage) -> Workload:
    """The workload of a stage, from its configuration."""
    spec, cost = stage.spec, stage.cost
    tokens, flops, batches, family, precision = cost.tokens, cost.flops, None, stage.kind, "float32"
    size = spec.resources.size
    if isinstance(spec, TrainingConfig):
        family, precision = TRAINING, spec.train.precision
        rows = spec.train.share(size) // spec.data.length
        batches = spec.train.steps * -(-rows // rows_at_once(spec))
        of_batch = sum(width * count for width, count in computed_widths(spec).items())
        tokens = round(spec.train.steps * of_batch)
    elif isinstance(spec, ModelEvaluation):
        family = EVALUATION
        of_all = sum(
            -(-one.sequences // max(1, spec.batch_tokens // one.length))
            for one in spec.forward_passes() or ()
            if one.length
        )
        batches = -(-of_all // size)
    if tokens is None and stage.model_spec is not None:
        length = (spec.max_sequence_length() or ((), stage.model_spec.train_length))[1]
        flops = flops_per_token(stage.model_spec.model, length) / 3
    return Workload(
        kind=stage.kind,
        family=family,
        question=_question(spec),
        embedding=stage.model_spec.embedding.name if stage.model_spec else None,
        precision=precision,
        share=min(1.0, spec.resources.gpus),
        batches=batches,
        tokens=None if tokens is None else tokens // size,
        flops=None if flops is None else flops / (size if tokens is not None else 1),
        threads=1 if spec.resources.gpus else spec.resources.threads,
        width=stage.model_spec.model.hidden_size if stage.model_spec else None,
    )


def _question(spec: StageConfig) -> str:
    settings = config_json(spec).items()
    return digest({name: value for name, value in settings if name not in NOT_SETTINGS})


def speed_up(threads: int) -> float:
    """The time on one thread over that on `threads` (Amdahl, AFIPS 1967)."""
    return 1 / (1 - PARALLEL + PARALLEL / threads)


@dataclass(frozen=True)
class Timing:
    """The seconds that a workload took."""

    work: Workload
    seconds: float

    @property
    def on_one_thread(self) -> float:
        """The seconds that it would have taken on one thread."""
        return self.seconds * speed_up(self.work.threads)


@dataclass(frozen=True)
class TimeEstimate:
    """The estimated seconds of a stage, None if unknown, the source of the estimate, and whether it
    is an assumption."""

    seconds: float | None
    source: str
    assumed: bool = False


NO_DEVICE = TimeEstimate(None, "unknown: name the GPU with --device")
READS_NOTHING = TimeEstimate(
    2.0, "assumed: 2 s for a model that is copied and reads nothing", assumed=True
)
UNKNOWN_TEXT = TimeEstimate(
    None, "unknown until run (the text's size is not known in advance; tokens or limit bounds it)"
)
UNKNOWN_WORK = TimeEstimate(None, "unknown until run (the input's size is not known in advance)")


class Calibration:
    """Estimates the time of any workload on any device from stages that were measured."""

    def __init__(self, timings: Mapping[str, Iterable[Timing]]) -> None:
        """`timings` holds the stages measured on each device, by the device's name."""
        self._timings = {device: list(measured) for device, measured in timings.items()}
        self._medians: dict[tuple[object, ...], tuple[float, str] | None] = {}

    def estimate(self, work: Workload, device: Device) -> TimeEstimate:
        """Estimate the seconds of `work` on `device`."""
        if not work.is_known:
            return self._of_the_same_settings(work, device) or _unmeasured(work, device)
        if (median := self._median_rate(work, device)) is not None:
            per_flop, which = median
            seconds = per_flop * (work.flops or 0.0) / speed_up(work.threads)
            # A larger model is not as slow for each FLOP as a tiny one.
            source = f"measured on {device.name}: {which}"
            return TimeEstimate(seconds, source, assumed=which.endswith(OTHER_SIZES))
        rate = device.assumed_rate(work.precision) * (work.share or 1.0)
        seconds = (work.flops or 0.0) / rate / speed_up(work.threads)
        return TimeEstimate(seconds, device.assumption, assumed=True)

    def most_measured(self) -> str | None:
        """The name of the GPU with the most measured stages, None if there is none."""
        counts = {name: len(measured) for name, measured in self._timings.items() if name != CPU}
        return max(counts, key=counts.__getitem__, default=None)

    def _median_rate(self, work: Workload, device: Device) -> tuple[float, str] | None:
        """The median seconds of a FLOP on one thread, and of which stages; None without any."""
        key = (device.name, work.kind, work.family, work.width, work.precision, work.share)
        if key not in self._medians:
            measured = [
                timing
                for timing in self._timings.get(device.name, ())
                if timing.work.is_known
                and (timing.work.precision, timing.work.share) == (work.precision, work.share)
            ]
            self._medians[key] = _narrowest(work, measured)
        return self._medians[key]

    def _of_the_same_settings(self, work: Workload, device: Device) -> TimeEstimate | None:
        """Estimate by stages with the same settings on other models, in proportion to the FLOPs."""
        same = [
            timing.on_one_thread * (work.flops or 1.0) / (timing.work.flops or 1.0)
            for timing in self._timings.get(device.name, ())
            if timing.work.question == work.question and timing.work.share == work.share
        ]
        if not same:
            return None
        source = f"measured on {device.name}: {counted(len(same), 'stage')} with the same settings"
        return TimeEstimate(statistics.median(same) / speed_up(work.threads), source)


def _narrowest(work: Workload, measured: Sequence[Timing]) -> tuple[float, str] | None:
    """The median seconds of a FLOP over the stages that are most like `work`, and their words."""

    def same_kind(one: Workload) -> bool:
        return work.family == one.family and (work.family == TRAINING or work.kind == one.kind)

    def same_size(one: Workload) -> bool:
        return same_kind(one) and work.width == one.width

    def is_evaluation(one: Workload) -> bool:
        return work.family == one.family == EVALUATION

    def is_training(one: Workload) -> bool:
        return one.family == TRAINING

    noun = TRAINING if work.family == TRAINING else f"{work.kind} stage"
    for is_alike, counts, words in (
        (same_size, noun, "{}"),
        (same_kind, noun, f"{{}} {OTHER_SIZES}"),
        (is_evaluation, "evaluation", "{} of other kinds"),
        (is_training, TRAINING, "the rate of {}"),
    ):
        alike = [one for one in measured if is_alike(one.work)]
        if alike:
            rate = statistics.median(one.on_one_thread / (one.work.flops or 1.0) for one in alike)
            return rate, words.format(counted(len(alike), counts))
    return None


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


def calibrate(store: Store | None) -> Calibration:
    """Learn from the finished stages of a store; without a store, nothing is measured.

    Skipped are stages of another processor than this machine's, and resumed ones that had several
    workers, whose number may have changed, or that are no trainings, and may have begun again.
    """
    timings: dict[str, list[Timing]] = {}
    for record in store.execution_records() if store else ():
        with contextlib.suppress(KeyError, TypeError):  # a damaged record costs its own stage
            if (measured := _timing(record)) is not None:
                timings.setdefault(measured[0], []).append(measured[1])
    return Calibration(timings)


def _timing(record: Mapping[str, Any]) -> tuple[str, Timing] | None:
    """The device of a finished stage and its time there; None if the record is of no use."""
    work = Workload(**record["work"])
    taken = _work_time(record, work)
    if taken is None or record["device"] is None:
        return None
    if record["device"] == CPU:
        if record["processor"] != processor():
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
    return bool(record["planned_workers"] == 1)


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
