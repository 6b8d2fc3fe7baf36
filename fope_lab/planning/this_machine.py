"""What stages need that this machine has not, without torch and Ray.

It is no error of a sweep: the sweep may be meant for a cluster. A run on this machine refuses it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fope_lab.devices import cores, this_machine
from fope_lab.planning.capacity import amounts
from fope_lab.planning.memory_fit import why_too_large
from fope_lab.stages import Resources
from fope_lab.sweep.graph import Stage, Sweep

NVIDIA = Path("/proc/driver/nvidia/gpus")
"""Has an entry for each GPU that NVIDIA's driver on Linux knows."""
OTHER_GPUS = (Path("/dev/dxg"), Path("/dev/kfd"))
"""Devices of GPUs that this module can't count: those of WSL, and of AMD."""
ELSEWHERE = (
    "`run` refuses what this machine can't hold; `run --address` and `submit` use a cluster, and"
    " `plan --device NAME` checks another device"
)
SHOWN = 2
"""How many reasons a note names."""


def gpu_count() -> int | None:
    """The number of GPUs that a process may use; None if that can't be told."""
    try:
        count = len(list(NVIDIA.iterdir()))
    except OSError:
        return None if any(path.exists() for path in OTHER_GPUS) else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return count
    return min(count, len([name for name in visible.split(",") if name.strip() not in ("", "-1")]))


def machine_note(sweep: Sweep, stages: Iterable[Stage]) -> str | None:
    """One line on why this machine can't run some of a sweep's `stages`; None if it can run all."""
    gpus = gpu_count()
    there = {"CPU": float(cores()), **({} if gpus is None else {"GPU": float(gpus)})}
    reasons: dict[str, None] = {}
    too_much = 0
    for stage in stages:
        found = list(_reasons(stage, there))
        too_much += bool(found)
        reasons |= dict.fromkeys(f"{stage.section} {reason}" for reason in found)
    if not reasons:
        return None
    more = f"; and {len(reasons) - SHOWN} more reasons" if len(reasons) > SHOWN else ""
    which = f"{too_much:,} of its stages" if too_much > 1 else "one of its stages"
    return f"{sweep.name}: this machine can't hold {which}: {'; '.join([*reasons][:SHOWN])}{more}"


def _reasons(stage: Stage, there: Mapping[str, float]) -> Iterator[str]:
    lacking = list(_lacking(stage.spec.resources, there))
    yield from lacking
    if not lacking and (too_large := why_too_large(stage, None, this_machine())):
        yield too_large


def _lacking(resources: Resources, there: Mapping[str, float]) -> Iterator[str]:
    """What all workers of a stage occupy together and this machine does not have."""
    for name, amount in amounts(resources).items():
        if name in there and amount > there[name]:
            several = "s" if amount != 1 else ""
            yield f"needs {amount:g} {name}{several}, and there are {there[name]:g}"
