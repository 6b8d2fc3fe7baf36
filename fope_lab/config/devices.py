"""Devices that a plan can be made for: their memory, peak and power, from devices.yaml."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fope_lab.config.problems import Problem, SweepError, did_you_mean, name_list

CPU = "cpu"
"""The name that stands for this machine's processors."""
GIB = 2**30


@dataclass(frozen=True)
class Device:
    """A device: its `memory` in bytes, and its `peak` FLOP/s of dense products by precision.

    `known_as` holds the names by which stages record it. `share` is the part of the peak that is
    assumed where nothing was measured, and `assumption` says so in words. For the CPU, the memory
    is that of the machine and the peak that of a core.
    """

    name: str
    known_as: tuple[str, ...]
    memory: int
    peak: Mapping[str, float]
    share: float
    assumption: str
    source: str

    def assumed_rate(self, precision: str) -> float:
        """The FLOP/s that a stage is assumed to reach where nothing was measured."""
        return self.share * self.peak[precision]


def device_named(name: str, option: str = "--device") -> Device:
    """Look up a device. Raises SweepError with the nearest name and all names."""
    if name == CPU:
        return this_machine()
    devices = known_devices()
    if name not in devices:
        allowed = [CPU, *devices]
        message = f"found {name!r}{did_you_mean(name, allowed)} (allowed: {name_list(allowed)})"
        raise SweepError(Problem((option,), message))
    return devices[name]


def recorded_device(recorded: str) -> Device | None:
    """The device that a stage recorded; None if it is not a known GPU."""
    return next((one for one in known_devices().values() if recorded in one.known_as), None)


def board_watts(recorded: str) -> float | None:
    """The board power of the GPU that a stage recorded; None if it is not known."""
    cards: dict[str, float | None] = {}
    for entry in _raw()["devices"].values():
        cards |= entry["names"]
    return cards.get(recorded)


@functools.cache
def known_devices() -> Mapping[str, Device]:
    """The GPUs of devices.yaml by name."""
    raw = _raw()
    share = float(raw["assumed_share"])
    return {
        name: Device(
            name=name,
            known_as=tuple(entry["names"]),
            memory=int(entry["memory"] * GIB),
            peak={p: float(entry[p]) * 1e12 for p in ("float32", "bfloat16")},
            share=share,
            assumption=f"assumed: {share:.0%} of the peak of {name}, and neither start-up nor"
            " communication",
            source=entry["source"],
        )
        for name, entry in raw["devices"].items()
    }


@functools.cache
def this_machine() -> Device:
    """The processors of this machine, with its memory."""
    core = float(_raw()["assumed_core"])
    return Device(
        name=CPU,
        known_as=(CPU,),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        peak={"float32": core, "bfloat16": core},
        share=1.0,
        assumption=f"assumed: {core / 1e9:.0f} GFLOP/s a core, and no start-up",
        source="this machine",
    )


def cores() -> int:
    """The number of cores of this machine."""
    return os.cpu_count() or 1


@functools.cache
def _raw() -> dict[str, Any]:
    text = Path(__file__).with_name("devices.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))
