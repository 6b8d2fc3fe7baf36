"""What a plan says of the time that the papers' sweeps take, beside the hours that they print."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.generate.markdown import table
from docs.generate.shipped import ROOT, load_shipped
from fope_lab.planning.estimate import PlanEstimate, estimate_plans
from fope_lab.planning.needed_stages import plan_sweeps
from fope_lab.report.compare.published import PublishedHours, PublishedTraining, load_published
from fope_lab.stages.labels import label
from fope_lab.store.root import Store
from fope_lab.sweep.graph import Stage, Sweep

PAPERS = ("fope", "resonance", "p_rope")
OTHER_DEVICE = "h100"
"""The GPU of a plan where a paper prints none that a plan knows."""
HOUR = 3600.0
FEW = 3
"""As many different times are named; of more, the least and the most."""


@dataclass(frozen=True)
class Planned:
    """A sweep of a paper, its plan on a device, and what the paper prints for its trainings."""

    file: Path
    sweep: Sweep
    printed: PublishedHours | None
    plan: PlanEstimate

    @property
    def name(self) -> str:
        """The file within the folder of sweeps."""
        return self.file.relative_to(ROOT / "sweeps").as_posix()

    @property
    def device(self) -> str:
        """The GPU that the plan is for."""
        return self.plan.device.name if self.plan.device else "–"

    @property
    def trainings(self) -> list[Stage]:
        """The trainings, each once."""
        return [stage for stage in self.sweep.stages if stage.spec.trains]

    def hours(self, stages: Iterable[Stage]) -> list[float]:
        """The hours of stages by the clock, without those that do not fit the device."""
        known = (self.plan.forecasts[stage.key].seconds for stage in stages)
        return [seconds / HOUR for seconds in known if seconds is not None]

    @property
    def on_gpus(self) -> list[Stage]:
        """The stages that ask for GPUs."""
        return [stage for stage in self.sweep.stages if stage.spec.resources.gpus]

    def gpu_hours(self, stages: Sequence[Stage]) -> str:
        """The GPU-hours of stages in words, with how many do not fit and how many are unknown."""
        known = {stage.key: self.plan.forecasts[stage.key].gpu_hours for stage in stages}
        found = [hours for hours in known.values() if hours is not None]
        unfit = sum(key in self.plan.too_large for key in known)
        unknown = len(known) - len(found) - unfit
        parts = [f"{sum(found):,.0f}"] if found else []
        parts += [f"{unfit} do not fit"] if unfit else []
        parts += [f"{unknown} unknown"] if unknown else []
        return "; ".join(parts) or "–"

    def share_of_peak(self, training: PublishedTraining) -> float:
        """The part of the GPUs' peak that the printed hours mean, by the FLOPs that a plan
        counts."""
        assert self.plan.device is not None
        return self.plan.device.share * self.hours_of(training) / training.hours

    def hours_of(self, training: PublishedTraining) -> float:
        """The hours of the slowest of the trainings whose hours are printed."""
        return max(self.hours(stage for stage in self.trainings if _is_of(stage, training)))


def _is_of(stage: Stage, training: PublishedTraining) -> bool:
    """Whether a stage has the labels of a printed training's `where` on its axes."""
    labels = {path: label(value) for path, value in stage.axes.items()}
    return all(
        any(path.endswith(f".{name}") and text == wanted for path, text in labels.items())
        for name, wanted in training.where.items()
    )


@functools.cache
def planned() -> tuple[Planned, ...]:
    """Every sweep of the papers with a plan, on the hardware of its paper where that is known."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(folder)
        return tuple(one for paper in PAPERS for one in _planned(paper, store))


def _planned(paper: str, store: Store) -> Iterator[Planned]:
    """The sweeps of a paper. Those without printed hardware get that of the others, if it is one
    and the same."""
    files = sorted((ROOT / "sweeps" / paper).glob("*.yaml"))
    sweeps = {file: load_shipped(file) for file in files}
    printed = {
        file: load_published(sweep.paper).hours if sweep.paper else None
        for file, sweep in sweeps.items()
    }
    devices = {hours.device for hours in printed.values() if hours is not None}
    common = devices.pop() if len(devices) == 1 else None
    for file, sweep in sweeps.items():
        hours = printed[file]
        device = (common if hours is None else hours.device) or OTHER_DEVICE
        plan = estimate_plans(plan_sweeps([sweep], store), store, device=device)
        yield Planned(file, sweep, hours, plan)


def of_trainings(_: str) -> str:
    """A row for each printed number of hours: the plan's beside it, and the speed that it means."""
    header = ("sweep", "training", "printed for", "hours printed", "hours planned", "of the peak")
    rows = [
        (
            f"`{one.name}`",
            ", ".join(training.where.values()) or "each",
            f"{one.printed.hardware} ({one.printed.place})",
            f"{training.hours:g}",
            f"{one.hours_of(training):.1f}",
            f"{one.share_of_peak(training):.0%}",
        )
        for one in planned()
        if one.printed is not None
        for training in one.printed.trainings
    ]
    return table(header, rows)


def of_sweeps(_: str) -> str:
    """A row for each sweep of the papers that trains or reads models on GPUs."""
    header = (
        "sweep",
        "printed",
        "planned for",
        "trainings",
        "hours of one",
        "GPU-hours of all",
        "GPU-hours of evaluations",
    )
    return table(header, [_row(one) for one in planned() if one.on_gpus])


def _row(one: Planned) -> tuple[str, ...]:
    evaluations = [stage for stage in one.on_gpus if not stage.spec.trains]
    return (
        f"`{one.name}`",
        _printed(one.printed),
        one.device,
        f"{len(one.trainings):,}",
        _range(one.hours(one.trainings)),
        one.gpu_hours(one.trainings),
        one.gpu_hours(evaluations),
    )


def _printed(printed: PublishedHours | None) -> str:
    if printed is None:
        return "–"
    hours = ", ".join(f"{training.hours:g}" for training in printed.trainings)
    return f"{hours} h on {printed.hardware}" if hours else f"{printed.hardware}, no hours"


def _range(hours: Sequence[float]) -> str:
    """The different numbers, if they are few, or else the least and the most."""
    shown = list(
        dict.fromkeys(f"{value:.2g}" if value < 10 else f"{value:,.0f}" for value in sorted(hours))
    )
    if len(shown) > FEW:
        return f"{shown[0]} to {shown[-1]}"
    return ", ".join(shown) or "–"
