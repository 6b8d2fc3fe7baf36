"""What several sweeps cost together: each stage once, with time, GPU-hours and money."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fope_lab.config.devices import Device, cores, device_named, this_machine
from fope_lab.config.problems import Problem, SweepError
from fope_lab.planning.forecast import CANNOT_RUN, Forecast, calibrate, forecast
from fope_lab.planning.memory_fit import too_large, too_large_error
from fope_lab.planning.schedule import Machines, WallTime, wall_time
from fope_lab.store.root import Store
from fope_lab.store.state import StageState, Status
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.plan import ACTIONS, Plan, action

TO_DO = ("run", "resume", "if needed")
"""What `plan --json` says of stages that are left to do, at most."""
SAVED = ("tokens", "flops", "seconds", "gpu_hours", "cost")
"""The sums that a plan reports for stages that are shared."""


@dataclass(frozen=True)
class PlanEstimate:
    """Plans over one store, with the state and the forecast of every stage by key. `stages` are
    those of all plans, each once, parents first. `wall` is the time by the clock of the remaining
    stages on `machines`, but for those whose time is unknown. `device` is the GPU of stages with
    GPUs, `price` that of one for an hour, and `too_large` why stages can't run there."""

    plans: tuple[Plan, ...]
    stages: tuple[Stage, ...]
    states: Mapping[str, StageState]
    forecasts: Mapping[str, Forecast]
    wall: WallTime
    machines: Machines
    device: Device | None
    price: float | None
    too_large: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return what `plan --json` prints.

        `parents` holds keys, or the folder of a checkpoint, by role. `memory` is the most bytes
        that a worker needs at once. Unknown numbers are null, and `unknown` counts the stages
        without a time. Totals are of what is left to do, `least` of what a run starts whatever
        seeds its results ask for. With several sweeps, `sweeps` says what each requests.
        """
        sweeps = [self._of_plan(plan) for plan in self.plans] if len(self.plans) > 1 else []
        return {
            "stages": [self._row(stage) for stage in self.stages],
            "totals": self.totals(),
            **({"sweeps": sweeps} if sweeps else {}),
        }

    def totals(self) -> dict[str, Any]:
        counts = Counter(action(self.states[stage.key]) for stage in self.stages)
        certain = self._of("run", "resume")
        return {
            "stages": len(self.stages),
            **{word: counts[word] for word in ACTIONS},
            **self.sums(self.todo()),
            "least": {"stages": len(certain), **self.sums(certain)},
            "wall_seconds": {"bound": self.wall.bound, "scheduled": self.wall.scheduled},
            **self.sharing(self.plans),
        }

    def waiting(self) -> tuple[Stage, ...]:
        """The stages to do that cannot start, because an ancestor is blocked."""
        held = {key for key, state in self.states.items() if state.status is Status.BLOCKED}
        for stage in self.stages:  # parents before children
            if not held.isdisjoint(stage.parents.values()):
                held.add(stage.key)
        return tuple(stage for stage in self.todo() if stage.key in held)

    def require_fit(self) -> None:
        """Raise SweepError if a stage cannot run on the device, with the reason and a remedy."""
        if self.too_large:
            raise too_large_error(self.plans, self.too_large)

    @functools.cached_property
    def notes(self) -> dict[str, int]:
        """The sources of the remaining stages' forecasts, numbered in the order of the stages."""
        left = (stage.key for stage in self.stages if not self.states[stage.key].is_done)
        sources = dict.fromkeys(self.forecasts[key].source for key in left)
        return {source: number for number, source in enumerate(sources, 1)}

    @property
    def is_assumed(self) -> bool:
        """Whether the time of a stage that is left to do is an assumption, and no bound."""
        return any(self.forecasts[stage.key].assumed for stage in self.todo())

    def todo(self) -> list[Stage]:
        """The stages that a run would start or resume, and those that it may."""
        return self._of(*TO_DO)

    def _of(self, *actions: str) -> list[Stage]:
        return [stage for stage in self.stages if action(self.states[stage.key]) in actions]

    def sums(self, stages: Iterable[Stage]) -> dict[str, Any]:
        """Tokens, FLOPs, the most memory, seconds of work in total, GPU-hours and money."""
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
        """How many stages `plans` request, finished ones too, and what running each once saves."""
        by_key = {stage.key: stage for stage in self.stages}  # others may have other resources
        requested = [by_key[stage.key] for plan in plans for stage in requested_stages(plan.sweep)]
        once = {stage.key: stage for stage in requested}.values()
        unshared, shared = self.sums(requested), self.sums(once)
        saved = {
            name: None if unshared[name] is None else unshared[name] - shared[name]
            for name in SAVED
        }
        return {"asked": len(requested), "saved": {"stages": len(requested) - len(once), **saved}}

    def shared(self, plan: Plan) -> list[Stage]:
        """The stages of a plan that another plan has as well."""
        others = {stage.key for one in self.plans if one is not plan for stage in one.sweep.stages}
        return [stage for stage in plan.sweep.stages if stage.key in others]

    def _of_plan(self, plan: Plan) -> dict[str, Any]:
        shared = self.shared(plan)
        sums = self.sums(shared)
        return {
            "name": plan.sweep.name,
            "path": str(plan.sweep.path),
            "stages": len(plan.sweep.stages),
            **self.sharing([plan]),
            "shared": {"stages": len(shared), **{name: sums[name] for name in SAVED}},
            **self.sums(plan.sweep.stages),
        }

    def _row(self, stage: Stage) -> dict[str, Any]:
        state, cost, forecast = self.states[stage.key], stage.cost, self.forecasts[stage.key]
        near = next((p.nearest[stage.key] for p in self.plans if stage.key in p.nearest), None)
        return {
            "key": stage.key,
            "name": stage.label,
            "kind": stage.kind,
            "state": action(state),
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
            "estimate": forecast.source,
            "nearest": near and {"key": near.key, "differences": list(near.differences)},
        }


def requested_stages(sweep: Sweep) -> list[Stage]:
    """The stages that a file requests: one for each value of its axes and each seed, and stages of
    other files and prepared data once."""
    named = [stage for stages in sweep.by_section.values() for stage in stages]
    known = {stage.key for stage in named}
    return [*(stage for stage in sweep.stages if stage.key not in known), *named]


def estimate_plans(
    plans: Sequence[Plan],
    store: Store | None = None,
    *,
    device: str | None = None,
    price: float | None = None,
    gpus: float | None = None,
    cpus: float | None = None,
) -> PlanEstimate:
    """Estimate what `plans` cost, with times measured in `store`.

    `device` names the GPU of stages with GPUs (default: that with the most stages measured), and
    `price` is that of a GPU for an hour. There are `gpus` (default: what the largest stage asks
    for) and `cpus` (default: this machine's cores, or with a named device what the stages need).
    Raises SweepError for an unknown device, and for fewer GPUs than a stage asks for.
    """
    calibration = calibrate(store)
    name = calibration.most_measured() if device is None else device
    gpu, cpu = (None if name is None else device_named(name)), this_machine()
    stages = tuple({stage.key: stage for plan in plans for stage in plan.sweep.stages}.values())
    most = max((stage.spec.resources.gpus for stage in stages), default=0.0)
    if gpus is not None and gpus < most:
        message = f"found {gpus:g}, needs at least the {most:g} that one stage asks for"
        raise SweepError(Problem(("--gpus",), message))
    there = math.inf if device is not None and most else cores()
    machines = Machines(cpus or there, most if gpus is None else gpus)
    states = {key: state for plan in plans for key, state in plan.states.items()}
    reasons = {}
    if device is not None:
        left = (stage for stage in stages if not states[stage.key].is_done)
        reasons = too_large(left, gpu, cpu if gpu == cpu else None)
    states |= {key: StageState(Status.BLOCKED, reason) for key, reason in reasons.items()}
    plans = tuple(replace(plan, states={key: states[key] for key in plan.states}) for plan in plans)
    forecasts = {
        stage.key: CANNOT_RUN
        if stage.key in reasons
        else forecast(stage, calibration, gpu if stage.spec.resources.gpus else cpu, price)
        for stage in stages
    }
    todo = {
        stage.key: forecasts[stage.key].seconds or 0.0
        for stage in stages
        if action(states[stage.key]) in TO_DO
    }
    wall = wall_time(stages, todo, machines)
    return PlanEstimate(plans, stages, states, forecasts, wall, machines, gpu, price, reasons)


def _total(values: Iterable[float | None]) -> float | None:
    """The sum of the known values; None if there are values and all are unknown."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known or not found else None
