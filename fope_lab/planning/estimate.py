"""What sweeps cost together: their stages, each once, with time, GPU-hours and money.

`asked` of a sweep counts what its file asks for: each stage by its name once for each value of the
axes that lead to it and each seed, and what those need of other files and of prepared data once.
Equal stages are one stage, in a file and between files; what that saves is the difference.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.config.problems import Problem, SweepError
from fope_lab.planning.calibration import Calibration, Estimate, calibrated
from fope_lab.planning.devices import Device, cores, device_named, this_machine
from fope_lab.planning.memory_fit import refusal, unfit
from fope_lab.planning.schedule import Machines, WallTime, wall_time
from fope_lab.planning.workload import work_of
from fope_lab.sweep.plan import STATES, Plan, State

if TYPE_CHECKING:
    from fope_lab.store import Store
    from fope_lab.sweep.graph import Stage
    from fope_lab.sweep.spec import Sweep

HOUR = 3600.0
SAVED = ("tokens", "flops", "seconds", "gpu_hours", "cost")
"""What is told of stages that are shared."""
NO_DEVICE = Estimate(None, "not known: --device names one")


@dataclass(frozen=True)
class Forecast:
    """What a stage takes: seconds, GPU-hours and money, None where not known, and how that is
    known. Money is of GPUs alone, at the price that was given."""

    seconds: float | None
    gpu_hours: float | None
    cost: float | None
    estimate: str


CANT = Forecast(None, None, None, "can't run there")


@dataclass(frozen=True)
class Budget:
    """Plans over one store, and what their stages take, by key.

    `stages` are those of all plans, each once, parents first. `wall` is the time by the clock of
    what is left to do on `machines`, without the stages whose time is not known. `device` is what
    the stages with GPUs were estimated for, `price` that of one for an hour. `unfit` are the stages
    that can't run there, by key.
    """

    plans: tuple[Plan, ...]
    stages: tuple[Stage, ...]
    states: Mapping[str, State]
    forecasts: Mapping[str, Forecast]
    wall: WallTime
    machines: Machines
    device: Device | None
    price: float | None
    unfit: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """As `plan --json` prints it; the totals are those of what is left to do.

        `parents` holds keys, or the folder of a checkpoint, by role. `tokens`, `flops`, `memory`
        (bytes that a worker needs at once; its total is the largest), `seconds`, `gpu_hours` and
        `cost` are null where they are not known. Totals leave out stages whose time is not known:
        `unknown` counts them. Of several sweeps there are `sweeps`, with what each asks for.
        """
        content: dict[str, Any] = {
            "stages": [self._row(stage) for stage in self.stages],
            "totals": self.totals(),
        }
        if len(self.plans) > 1:
            content["sweeps"] = [self._of_plan(plan) for plan in self.plans]
        return content

    def totals(self) -> dict[str, Any]:
        """Counts by state, and sums over what is left to do."""
        counts = Counter(self.states[stage.key].state for stage in self.stages)
        wall = self.wall
        totals = {
            "stages": len(self.stages),
            **{state: counts[state] for state in STATES},
            **self.sums(self.todo()),
            "wall_seconds": {"bound": wall.bound, "scheduled": wall.scheduled},
        }
        return totals | self.sharing(self.plans)

    def waiting(self) -> tuple[Stage, ...]:
        """The stages to do that can't begin, since one that they come from is blocked."""
        held: set[str] = {key for key, state in self.states.items() if state.state == "blocked"}
        found = []
        for stage in self.stages:  # parents before children
            if stage.key not in held and held & set(stage.parents.values()):
                held.add(stage.key)
                found.append(stage)
        todo = {stage.key for stage in self.todo()}
        return tuple(stage for stage in found if stage.key in todo)

    def require_fit(self) -> None:
        """Raises SweepError if a stage can't run on the device, with reasons and what would
        help."""
        if self.unfit:
            raise refusal(self.plans, self.unfit)

    @functools.cached_property
    def notes(self) -> dict[str, int]:
        """Where the times of what is not done come from, numbered in the order of the stages."""
        sources = (
            self.forecasts[stage.key].estimate
            for stage in self.stages
            if self.states[stage.key].state != "cached"
        )
        return {source: number for number, source in enumerate(dict.fromkeys(sources), 1)}

    def todo(self) -> list[Stage]:
        """The stages that a run would run."""
        return [s for s in self.stages if self.states[s.key].state in ("run", "resume")]

    def sums(self, stages: Iterable[Stage]) -> dict[str, Any]:
        """Tokens, FLOPs, most memory, seconds one after another, GPU-hours and money."""
        stages = list(stages)
        forecasts = [self.forecasts[stage.key] for stage in stages]
        on_gpus = [self.forecasts[s.key] for s in stages if s.spec.resources.gpus]
        return {
            "tokens": sum(stage.cost.tokens or 0 for stage in stages),
            "flops": sum(stage.cost.flops or 0.0 for stage in stages),
            "memory": max((stage.cost.memory or 0 for stage in stages), default=0),
            "seconds": _total(one.seconds for one in forecasts),
            "gpu_hours": _total(one.gpu_hours for one in on_gpus),
            "cost": None if self.price is None else _total(one.cost for one in on_gpus),
            "unknown": sum(one.seconds is None for one in forecasts),
        }

    def sharing(self, plans: Sequence[Plan]) -> dict[str, Any]:
        """How many stages `plans` ask for, and what is saved by running equal ones once.

        Stages that are done count as the others: it is about the whole sweeps.
        """
        by_key = {stage.key: stage for stage in self.stages}  # others may have other resources
        asked = [by_key[stage.key] for plan in plans for stage in asked_by(plan.sweep)]
        once = {stage.key: stage for stage in asked}.values()
        all_of_it, shared = self.sums(asked), self.sums(once)
        saved = {
            name: None if all_of_it[name] is None else all_of_it[name] - shared[name]
            for name in SAVED
        }
        return {"asked": len(asked), "saved": {"stages": len(asked) - len(once), **saved}}

    def shared(self, plan: Plan) -> list[Stage]:
        """The stages of a plan that another of the plans has too."""
        others = {stage.key for one in self.plans if one is not plan for stage in one.stages}
        return [stage for stage in plan.stages if stage.key in others]

    def _of_plan(self, plan: Plan) -> dict[str, Any]:
        shared = self.sums(self.shared(plan))
        return {
            "name": plan.sweep.name,
            "path": str(plan.sweep.path),
            "stages": len(plan.stages),
            **self.sharing([plan]),
            "shared": {
                "stages": len(self.shared(plan)),
                **{name: shared[name] for name in SAVED},
            },
            **self.sums(plan.stages),
        }

    def _row(self, stage: Stage) -> dict[str, Any]:
        state, cost, forecast = self.states[stage.key], stage.cost, self.forecasts[stage.key]
        return {
            "key": stage.key,
            "name": stage.name,
            "kind": stage.kind,
            "state": state.state,
            "reason": state.reason,
            "parents": {**stage.parents, **stage.checkpoints},
            "axes": stage.axes,
            "seed": stage.seed,
            "params": cost.parameters.total if cost.parameters else None,
            "tokens": cost.tokens,
            "flops": cost.flops,
            "memory": cost.memory,
            "seconds": forecast.seconds,
            "gpu_hours": forecast.gpu_hours,
            "cost": forecast.cost,
            "estimate": forecast.estimate,
        }


def asked_by(sweep: Sweep) -> list[Stage]:
    """The stages that a file asks for, equal ones as often as it does."""
    named = [stage for stages in sweep.by_name.values() for stage in stages]
    known = {stage.key for stage in named}
    return [*(stage for stage in sweep.stages if stage.key not in known), *named]


def budget(
    plans: Sequence[Plan],
    store: Store | None = None,
    *,
    device: str | None = None,
    price: float | None = None,
    gpus: float | None = None,
    cpus: float | None = None,
) -> Budget:
    """What `plans` cost, with times learnt from `store`.

    `device` is what stages with GPUs run on (default: the one with most stages measured in the
    store, if any), `price` that of a GPU for an hour. `gpus` and `cpus` are how many there are in
    all (default: as many GPUs as one stage asks for at most; this machine's cores, or with a device
    as many as are needed). Raises SweepError for an unknown device, and for fewer GPUs than a stage
    asks for.
    """
    calibration = calibrated(store)
    name = calibration.most_measured() if device is None else device
    gpu, cpu = (None if name is None else device_named(name)), this_machine()
    stages = tuple({stage.key: stage for plan in plans for stage in plan.stages}.values())
    machines = _machines(stages, gpus, cpus, named=device is not None)
    states = {key: state for plan in plans for key, state in plan.states.items()}
    reasons = {
        stage.key: reason
        for stage in stages
        if device is not None and states[stage.key].state != "cached"
        if (reason := unfit(stage, gpu, cpu if gpu == cpu else None)) is not None
    }
    states |= {key: State("blocked", reason) for key, reason in reasons.items()}
    plans = tuple(replace(plan, states={key: states[key] for key in plan.states}) for plan in plans)
    forecasts = {
        stage.key: CANT
        if stage.key in reasons
        else _forecast(stage, calibration, gpu if stage.spec.resources.gpus else cpu, price)
        for stage in stages
    }
    todo = {
        stage.key: forecasts[stage.key].seconds or 0.0
        for stage in stages
        if states[stage.key].state in ("run", "resume")
    }
    wall = wall_time(stages, todo, machines)
    return Budget(plans, stages, states, forecasts, wall, machines, gpu, price, reasons)


def _forecast(
    stage: Stage, calibration: Calibration, device: Device | None, price: float | None
) -> Forecast:
    found = calibration.estimate(work_of(stage), device) if device else NO_DEVICE
    hours: float | None = 0.0
    if stage.spec.resources.gpus:
        hours = None if found.seconds is None else found.seconds * stage.spec.resources.gpus / HOUR
    money = None if hours is None or price is None else hours * price
    return Forecast(found.seconds, hours, money, found.source)


def _machines(
    stages: Iterable[Stage], gpus: float | None, cpus: float | None, named: bool
) -> Machines:
    """`named` says whether a device was named: its cores are then as many as its GPUs need."""
    most = max((stage.spec.resources.gpus for stage in stages), default=0.0)
    if gpus is not None and gpus < most:
        message = f"found {gpus:g}, needs at least the {most:g} that one stage asks for"
        raise SweepError([Problem(Path("--gpus"), None, "", message)])
    there = math.inf if named and most else cores()
    return Machines(cpus or there, most if gpus is None else gpus)


def _total(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None if there are values and none is known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known or not found else None
