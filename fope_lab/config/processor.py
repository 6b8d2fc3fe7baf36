"""This machine's processor: its identity, and the device that a stage computes on."""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CPUINFO = Path("/proc/cpuinfo")
"""Where Linux describes the processor."""
X86 = {"family": "cpu family", "model": "model"}
IDENTITY = {**X86, "implementer": "CPU implementer", "part": "CPU part"}
"""Fields that distinguish processors of the same name: on x86, else on ARM."""
FEATURES = ("flags", "Features")
"""What lists the instructions there, on x86 and on ARM."""
BFLOAT16 = ("amx_bf16", "avx512_bf16", "bf16")
"""The features that multiply in bfloat16, the quickest first; the last is ARM's."""


def processor() -> str:
    """The name of this machine's processor, such as "AMD EPYC (family 25, model 17, avx512_bf16)".

    Many clouds name every processor of a vendor alike.
    """
    fields = _fields()
    parts = [f"{word} {fields[name]}" for word, name in IDENTITY.items() if name in fields]
    if instruction := bfloat16_instruction():
        parts.append(instruction)
    name = fields.get("model name") or platform.machine()  # some systems have no model's name
    return f"{name} ({', '.join(parts)})" if parts else name


def bfloat16_instruction() -> str | None:
    """The feature of this processor that multiplies in bfloat16; "" if none, None if unknown."""
    listed = next((_fields()[name].split() for name in FEATURES if name in _fields()), None)
    if listed is None:
        return None
    return next((name for name in BFLOAT16 if name in listed), "")


def choose_device(gpus: float) -> torch.device:
    """The GPU that a stage reserved, or the CPU if it reserved none.

    Raises RuntimeError if it reserved a GPU and this process sees none: a stage that is meant for a
    GPU would take weeks on the CPU.
    """
    import torch

    if gpus == 0:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        why = "this process sees none"
        if torch.version.cuda is None and torch.version.hip is None:
            why = f"torch {torch.__version__} is built for CPUs"
        raise RuntimeError(f"the stage's resources ask for {gpus:g} GPU, but {why}")
    return torch.device("cuda")


@functools.cache
def _fields() -> Mapping[str, str]:
    """What Linux says of the first processor; empty on another system."""
    try:
        text = CPUINFO.read_text(encoding="utf-8")
    except OSError:
        return {}
    first, _, _ = text.partition("\n\n")
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
