"""Stages that a device or this machine can't hold, why, and what would make them fit.

A sweep may be meant for a cluster, so that a machine which lacks GPUs, cores or memory is no error
of the sweep: `plan` and `validate` note it, and a run on this machine refuses it. Nothing here
imports torch or Ray.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fope_lab.config.devices import CPU, GIB, Device, cores, this_machine
from fope_lab.config.problems import Problem, SweepError
from fope_lab.planning.schedule import amounts
from fope_lab.stages.base import StageConfig
from fope_lab.stages.training import TrainingConfig
from fope_lab.sweep.cost import memory_of
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.plan import Plan

MARGIN = 1.05
"""A stage is refused if it needs more than this times the device's memory: estimates were 0.98 to
1.04 of what was measured, so that what could fit is never refused."""
PARTS = ("weights", "gradients", "optimizer", "activations")
MOST_SHARDS = 64
MOST_HELPS = 2
"""How many remedies an error names."""

Changes = Iterator[tuple[str, StageConfig]]
"""A change of a stage's settings in words, and the stage's configuration with it."""


def why_too_large(stage: Stage, gpu: Device | None, cpu: Device | None) -> str | None:
    """Why a stage cannot run on its device; None if it can, or if its memory is unknown. `gpu` is
    the device of stages with GPUs and `cpu` that of the others, each None if unknown."""
    resources = stage.spec.resources
    device = gpu if resources.gpus else cpu
    if device is not None and resources.gpus and device.name == CPU:
        return f"asks for {resources.gpus:g} GPU{'s' * (resources.gpus > 1)}, and cpu has none"
    if device is None or stage.cost.memory is None or stage.model_spec is None:
        return None
    together = resources.size if device.name == CPU else 1  # workers that share the memory
    if stage.cost.memory * together <= MARGIN * device.memory:
        return None
    spec, learned = stage.spec, stage.cost.learned
    model, embedding = stage.model_spec.model, stage.model_spec.embedding
    room = device.memory / MARGIN / together  # so that the advice certainly fits
    remedies: dict[int, str] = {}  # by the memory left: what needs no less is no other way out
    for choices in _changed(spec):
        for words, changed in choices:
            memory = memory_of(changed, model, embedding, learned)
            if memory is not None and memory.peak <= room:
                if len(remedies) < MOST_HELPS:
                    remedies.setdefault(memory.peak, f"{words} would do ({_gib(memory.peak)})")
                break
    helps = " or ".join(remedies.values()) or "no setting would make it fit"
    memory = memory_of(spec, model, embedding, learned)
    assert memory is not None, "the cost of the stage has it"
    sizes = ((name, getattr(memory, name)) for name in PARTS)
    parts = ", ".join(f"{name} {_gib(size)}" for name, size in sizes if size)
    workers = f" for its {together} workers" if together > 1 else ""
    where = "this machine" if device.name == CPU else device.name
    return (
        f"needs {_gib(memory.peak * together)}{workers}, {where} has {_gib(device.memory)}"
        f" ({parts}); {helps}"
    )


def too_large(stages: Iterable[Stage], gpu: Device | None, cpu: Device | None) -> dict[str, str]:
    """Why stages cannot run on their devices, by key; see why_too_large."""
    reasons = ((stage.key, why_too_large(stage, gpu, cpu)) for stage in stages)
    return {key: reason for key, reason in reasons if reason is not None}


def too_large_error(plans: Iterable[Plan], reasons: Mapping[str, str]) -> SweepError:
    """The error for stages that cannot run, by key; a shared reason is given once."""
    groups = Counter(
        (one.sweep.path, stage.section, reasons[stage.key])
        for one in plans
        for stage in one.sweep.stages
        if stage.key in reasons
    )
    return SweepError(
        Problem(("stages", name), reason + (f" ({n} stages)" if n > 1 else ""), file=path)
        for (path, name, reason), n in groups.items()
    )


def _changed(spec: StageConfig) -> list[Changes]:
    """Changes that need less memory, the gentlest of each sort first."""
    if not isinstance(spec, TrainingConfig):
        return [spec.with_smaller_batches()]
    if spec.train.gradient_checkpointing:
        return [_smaller_batches(spec, {}), _sharded(spec)]
    twice = {"gradient_checkpointing": True}
    checkpointing = ("train.gradient_checkpointing", _trained(spec, twice))
    batches = _smaller_batches(spec, {}), iter([checkpointing]), _smaller_batches(spec, twice)
    return [*batches, _sharded(spec)]


def _smaller_batches(spec: TrainingConfig, also: dict[str, Any]) -> Changes:
    rows = spec.train.micro_batch(spec.resources.size) // spec.data.length
    words = "".join(f" and train.{name}" for name in also)
    while rows > 1:
        rows //= 2
        changes = {**also, "micro_batch_tokens": rows * spec.data.length}
        yield f"train.micro_batch_tokens {rows * spec.data.length}{words}", _trained(spec, changes)


def _sharded(spec: TrainingConfig) -> Changes:
    """FSDP on the GPUs asked for, then on more and more GPUs that can share the rows of a batch;
    smaller micro-batches are tried before more GPUs."""
    gpus, rows = int(spec.resources.gpus), spec.train.batch_tokens // spec.data.length
    if spec.resources.strategy == "fsdp" or gpus < 2:
        gpus = max(1, gpus) * 2
    more = {} if spec.train.gradient_checkpointing else {"gradient_checkpointing": True}
    while spec.resources.gpus and gpus <= MOST_SHARDS and rows % gpus == 0:
        resources = replace(spec.resources, gpus=float(gpus), workers=None, strategy="fsdp")
        shards = replace(spec, resources=resources)
        words = f"resources {{gpus: {gpus}, strategy: fsdp}}"
        yield words, shards
        for also in ({}, more) if more else ({},):
            for smaller, changed in _smaller_batches(shards, also):
                yield f"{words} with {smaller}", changed
        gpus *= 2


def _trained(spec: TrainingConfig, changes: dict[str, Any]) -> TrainingConfig:
    return replace(spec, train=replace(spec.train, **changes))


def _gib(size: float) -> str:
    return f"{size / GIB:,.1f} GiB"


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
    """The number of GPUs that a process may use; None if unknown."""
    try:
        count = len(list(NVIDIA.iterdir()))
    except OSError:
        return None if any(path.exists() for path in OTHER_GPUS) else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [] if visible is None else visible.split(",")
    chosen = sum(name.strip() not in ("", "-1") for name in names)
    return count if visible is None else min(count, chosen)


def machine_note(sweep: Sweep, stages: Iterable[Stage]) -> str | None:
    """One line on why this machine can't run some of a sweep's `stages`; None if it can run all."""
    gpus = gpu_count()
    there = {"CPU": float(cores()), **({} if gpus is None else {"GPU": float(gpus)})}
    found = [(stage.section, _reasons(stage, there)) for stage in stages]
    reasons = list(dict.fromkeys(f"{name} {each}" for name, own in found for each in own))
    if not reasons:
        return None
    too_much = sum(bool(own) for _, own in found)
    more = f"; and {len(reasons) - SHOWN} more reasons" if len(reasons) > SHOWN else ""
    which = f"{too_much:,} of its stages" if too_much > 1 else "one of its stages"
    return f"{sweep.name}: this machine can't hold {which}: {'; '.join(reasons[:SHOWN])}{more}"


def _reasons(stage: Stage, there: Mapping[str, float]) -> list[str]:
    lacking = [
        f"needs {amount:g} {name}{'s' * (amount != 1)}, and there are {there[name]:g}"
        for name, amount in amounts(stage.spec.resources).items()  # of all its workers together
        if name in there and amount > there[name]
    ]
    return lacking or [*filter(None, [why_too_large(stage, None, this_machine())])]
