"""A plan for reading: one line a stage, and totals."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fope_lab.sweep.plan import STATES, Plan

GIB = 2**30
STYLES = {"cached": "green", "resume": "cyan", "run": "bold", "blocked": "red"}


def print_plan(plan: Plan, console: Console) -> None:
    """Print every stage with its state, cost and reason, then the totals."""
    table = Table(box=None, pad_edge=False)
    table.add_column("stage", overflow="fold")
    table.add_column("state")
    for name in ("parameters", "tokens", "FLOPs", "memory"):
        table.add_column(name, justify="right")
    table.add_column("key")
    table.add_column("why", overflow="fold")
    for stage in plan.stages:
        state = plan.states[stage.key]
        cost = stage.cost
        table.add_row(
            Text(stage.name),
            Text(state.state, style=STYLES[state.state]),
            f"{cost.parameters.total:,}" if cost.parameters else "",
            f"{cost.tokens:,}" if cost.tokens is not None else "",
            f"{cost.flops:.2e}" if cost.flops is not None else "",
            f"{cost.memory / GIB:.1f} GiB" if cost.memory is not None else "",
            Text(stage.key[:8]),
            Text(state.reason),
        )
    console.print(table)
    totals = plan.as_json()["totals"]
    counts = ", ".join(f"{totals[state]} {state}" for state in STATES if totals[state])
    console.print(
        f"{plan.sweep.name}: {totals['stages']} stages: {counts}; to do: "
        f"{totals['tokens']:,} tokens, {totals['flops']:.2e} FLOPs, "
        f"{totals['memory'] / GIB:.1f} GiB at most in a worker",
        highlight=False,
    )
