"""A plan as a table in the terminal: a row for each stage, or for each name, and the totals."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fope_lab.config.devices import GIB
from fope_lab.config.problems import counted
from fope_lab.planning.estimate import PlanEstimate
from fope_lab.planning.forecast import HOUR
from fope_lab.stages.internal import Select
from fope_lab.stages.training import TrainingConfig
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import ACTIONS, Plan

STYLES = {
    "cached": "green",
    "resume": "cyan",
    "run": "bold",
    "blocked": "red",
    "if needed": "cyan",
    "not needed": "dim",
}
MANY = 40
"""The number of stages above which the stages of one name share a row."""


def print_plan(estimate: PlanEstimate, console: Console, *, every: bool = False) -> None:
    """Print the stages with their state and cost, then the totals. More than MANY stages are
    grouped by name, unless `every` row is asked for."""
    line = functools.partial(console.print, highlight=False, markup=False, soft_wrap=True)
    grouped = not every and sum(len(plan.sweep.stages) for plan in estimate.plans) > MANY
    for plan in estimate.plans:
        if len(estimate.plans) > 1:
            line(_of_sweep(estimate, plan), style="bold")
        console.print(_by_name(estimate, plan) if grouped else _by_stage(estimate, plan))
        if len(estimate.plans) > 1:
            console.print()
    if grouped:
        line("Each row has all stages of one name; --all lists every stage.")
    for text in _totals(estimate):
        line(text)


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them: '45 s', '12 min', '3.4 h', '130 h'."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / 60:.0f} min"
    hours = seconds / HOUR
    return f"{hours:.1f} h" if hours < 100 else f"{hours:,.0f} h"


def _table(estimate: PlanEstimate, first: Sequence[str], last: Sequence[str]) -> Table:
    numbers = ("parameters", "tokens", "FLOPs", "memory", "time", *_of_gpus(estimate))
    table = Table(box=None, pad_edge=False)
    for name in (*first, *numbers, *last):
        if name in numbers:
            table.add_column(name, justify="right")
        else:
            table.add_column(name, overflow="fold")
    return table


def _of_gpus(estimate: PlanEstimate) -> dict[str, Callable[[Any], str]]:
    """The columns that only plans with GPUs or a price have, with the format of their numbers."""
    columns: dict[str, Callable[[Any], str]] = {}
    if any(stage.spec.resources.gpus for stage in estimate.stages):
        columns["GPU-hours"] = hours
    if estimate.price is not None:
        columns["cost"] = "${:,.2f}".format
    return columns


def hours(value: float) -> str:
    """GPU-hours with at least three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _by_stage(estimate: PlanEstimate, plan: Plan) -> Table:
    table = _table(estimate, ("stage", "state"), ("key", "why"))
    for stage in plan.sweep.stages:
        state, action = plan.states[stage.key], plan.action(stage.key)
        table.add_row(
            Text(stage.label),
            Text(action, style=STYLES[action]),
            *_numbers(estimate, [stage]),
            Text(stage.key[:8]),
            Text(state.reason),
        )
    return table


def _by_name(estimate: PlanEstimate, plan: Plan) -> Table:
    table = _table(estimate, ("stage", "stages", "state"), ("why",))
    by_name: dict[str, list[Stage]] = {}
    for stage in plan.sweep.stages:
        by_name.setdefault(stage.section, []).append(stage)
    for name, stages in by_name.items():
        counts = Counter(plan.action(stage.key) for stage in stages)
        style = STYLES[counts.most_common(1)[0][0]] if len(counts) == 1 else ""
        blocked = [s for s in stages if plan.action(s.key) == "blocked"]
        reasons = list(dict.fromkeys(plan.states[stage.key].reason for stage in blocked))
        near = {plan.nearest[s.key].differences: s.key for s in stages if s.key in plan.nearest}
        if not blocked and len(near) == 1:  # all differ from the store in the same way
            reasons = [f"nearest: {plan.nearest[key]}" for key in near.values()]
        table.add_row(
            Text(name),
            Text(f"{len(stages):,}"),
            Text(_actions(counts), style=style),
            *_numbers(estimate, stages),
            Text("; ".join(reasons[:2]) + (f"; and {len(reasons) - 2} more" * (len(reasons) > 2))),
        )
    return table


def _actions(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[word]:,} {word}" for word in ACTIONS if counts[word])


def _numbers(estimate: PlanEstimate, stages: Sequence[Stage]) -> list[str]:
    """The numbers of a row: the range of parameters, the most memory, and sums of the rest."""
    todo = [stage for stage in stages if not estimate.states[stage.key].is_done]
    sizes = sorted({s.cost.parameters.total for s in stages if s.cost.parameters})
    sums = estimate.sums(stages)
    has_tokens = any(stage.cost.tokens is not None for stage in stages)
    time = _shown(sums, "seconds", duration, bool(todo))
    if sums["seconds"] and sums["unknown"]:
        time += " + ?"
    notes = {estimate.notes[estimate.forecasts[stage.key].source] for stage in todo}
    if len(notes) == 1:
        time += f" [{notes.pop()}]"
    return [
        " – ".join(f"{size:,}" for size in dict.fromkeys([*sizes[:1], *sizes[-1:]])),
        f"{sums['tokens']:,}" if has_tokens else "",
        f"{sums['flops']:.2e}" if sums["flops"] else "",
        f"{sums['memory'] / GIB:.1f} GiB" if sums["memory"] else "",
        time,
        *(_shown(sums, name, show, bool(todo)) for name, show in _of_gpus(estimate).items()),
    ]


def _shown(sums: dict[str, Any], column: str, show: Callable[[Any], str], todo: bool) -> str:
    """A number, or a question mark if it is unknown for stages that are still `todo`."""
    value = sums[column.lower().replace("-", "_")]
    if value is None:
        return "?" if todo else ""
    return show(value) if value else ""


def _of_sweep(estimate: PlanEstimate, plan: Plan) -> str:
    requested = estimate.sharing([plan])["asked"]
    shared = estimate.shared(plan)
    gpu = estimate.sums(shared)["gpu_hours"]
    of_these = f" ({hours(gpu)} GPU-hours)" if gpu else ""
    return (
        f"{plan.sweep.name} ({plan.sweep.path}): {counted(requested)} requested, "
        f"{len(plan.sweep.stages):,} unique, {len(shared):,} of them{of_these} in other sweeps too"
    )


def _totals(estimate: PlanEstimate) -> Iterable[str]:
    totals = estimate.totals()
    names = ", ".join(plan.sweep.name for plan in estimate.plans)
    yield (
        f"{names}: {counted(totals['stages'])}: {_actions(Counter(totals))}; to do: "
        f"{totals['tokens']:,} tokens, {totals['flops']:.2e} FLOPs, "
        f"{totals['memory'] / GIB:.1f} GiB at most in a worker"
    )
    yield from _seeds(estimate, totals)
    if early := sum(stage.may_stop_early for stage in estimate.todo()):
        yield (
            f"{counted(early, 'training')} may end early, at train.stop_at_accuracy: tokens, FLOPs"
            " and time are at most these"
        )
    specs = [stage.spec for stage in estimate.todo()]
    trainings = [spec.train for spec in specs if isinstance(spec, TrainingConfig)]
    ways = dict.fromkeys(train.update_in_words() for train in trainings)
    yield from (f"updates: {way}" for way in ways)
    if waiting := estimate.waiting():
        yield f"{len(waiting):,} stages wait for a blocked stage; their cost is counted"
    if chosen := [stage for stage in estimate.stages if isinstance(stage.spec, Select)]:
        keys = {key for stage in chosen for key in stage.parents.values()}
        candidates = [stage for stage in estimate.stages if stage.key in keys]
        tokens = sum(stage.cost.tokens or 0 for stage in candidates)
        yield (
            f"selection: {counted(len(candidates), 'candidate')} with {tokens:,} tokens in all, for"
            f" {counted(len(chosen), 'chosen model')}; the totals count what is to do of them"
        )
    saved = totals["saved"]
    if saved["stages"]:
        gpu = saved["gpu_hours"]
        more = f", {hours(gpu)} GPU-hours" if gpu else ""
        more += f", ${saved['cost']:,.2f}" if saved["cost"] else ""
        yield (
            f"sharing: {totals['asked']:,} requested, {totals['stages']:,} unique after sharing; "
            f"saved: {counted(saved['stages'])}, {saved['tokens']:,} tokens, "
            f"{saved['flops']:.2e} FLOPs{more}"
        )
    if totals["seconds"] is not None and estimate.todo():
        yield _time(estimate, totals)
    for source, number in estimate.notes.items():
        yield f"[{number}] {source}"


def _seeds(estimate: PlanEstimate, totals: dict[str, Any]) -> Iterable[str]:
    if not totals["if needed"]:
        return
    rules = (plan.sweep.seed_rule for plan in estimate.plans)
    ranges = dict.fromkeys(f"{rule.always} to {rule.at_most}" for rule in rules if rule)
    shown = " and ".join(ranges)
    least, parts = totals["least"], []
    for name, show, unit in (
        ("seconds", duration, " of work"),
        ("gpu_hours", hours, " GPU-hours"),
        ("cost", "${:,.2f}".format, ""),
    ):
        if totals[name] and least[name] is not None:
            parts.append(f"{show(least[name])} to {show(totals[name])}{unit}")
    parts.append(f"{least['stages']:,} to {least['stages'] + totals['if needed']:,} stages")
    yield f"{shown} seeds: {', '.join(parts)}, as the rule of seeds asks for them"


def _time(estimate: PlanEstimate, totals: dict[str, Any]) -> str:
    machines, wall = estimate.machines, estimate.wall
    places = []
    if machines.gpus:
        places.append(f"{machines.gpus:g} × {estimate.device.name if estimate.device else 'GPU'}")
    if math.isfinite(machines.cpus):
        places.append(f"{machines.cpus:g} core{'s' * (machines.cpus != 1)}")
    where = " and ".join(places)
    unknown = totals["unknown"]
    amount, best = "at least " if unknown else "", "no order takes less than"
    if estimate.is_assumed:
        amount, best = "about ", "at best about"
    text = (
        f"time: {amount}{duration(totals['seconds'])} of work in total; "
        f"{amount or 'about '}{duration(wall.scheduled)} on {where} (longest remaining path first; "
        f"{best} {duration(wall.bound)})"
    )
    if totals["gpu_hours"]:
        text += f"; {hours(totals['gpu_hours'])} GPU-hours"
    if totals["cost"] is not None:
        text += f", ${totals['cost']:,.2f}"
    if unknown:
        text += f"; not counting {counted(unknown)} whose time is unknown: it may be far more"
    return text
