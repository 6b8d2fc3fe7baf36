"""What the finished stages of a sweep cost: time, tokens, and an estimate of the energy.

Each stage counts with all its attempts, also with the work that was lost and done again, but not
with output that was set aside. Energy is not measured. It is the time
that each processor was reserved for, times its power at full load: a GPU's board power in its
vendor's datasheet, and WATTS_PER_CORE for a core. Memory, cooling and idle processors are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fope_lab.report.results.stage_results import StageResult

WATTS_PER_CORE = 5.0
"""Server processors of 2019 to 2024 have 3 to 6 W of thermal design power for each core."""
BOARD_WATTS = {
    "NVIDIA RTX A6000": 300,
    "RTX A6000": 300,
    "NVIDIA A40": 300,
    "NVIDIA A10": 150,
    "NVIDIA A100-SXM4-40GB": 400,
    "NVIDIA A100-SXM4-80GB": 400,
    "NVIDIA A100-PCIE-40GB": 250,
    "NVIDIA A100 80GB PCIe": 300,
    "NVIDIA H100 80GB HBM3": 700,
    "NVIDIA H100 PCIe": 350,
    "NVIDIA H200": 700,
    "NVIDIA L4": 72,
    "NVIDIA L40S": 350,
    "NVIDIA GeForce RTX 3090": 350,
    "NVIDIA GeForce RTX 4090": 450,
}
"""Board power in watts, from each card's datasheet, by the name that its driver gives."""
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Cost:
    """The cost of finished stages.

    `seconds` is the sum of their wall times, `core_seconds` and `gpu_seconds` the time that cores
    and GPUs were reserved for, `tokens` what the trainings read, and `joules` the estimate of the
    energy: None if a stage ran on a GPU whose power is unknown.
    """

    stages: int
    seconds: float
    core_seconds: float
    gpu_seconds: float
    tokens: int
    joules: float | None

    @property
    def energy(self) -> str:
        """The energy in words: 'about 0.012 kWh (estimated: …)', or that it is unknown."""
        if self.joules is None:
            return "an unknown energy (a stage ran on a GPU whose power is not listed)"
        powers = [f"{WATTS_PER_CORE:g} W for each core"]
        if self.gpu_seconds:
            powers.append("each GPU's board power")
        how = f"estimated, not measured: {' and '.join(powers)}, without memory and cooling"
        return f"about {self.joules / JOULES_PER_KWH:.2g} kWh ({how})"


def cost_of(results: Iterable[StageResult]) -> Cost:
    """The cost of the stages that are done."""
    done = [result for result in results if result.state.is_done]
    cores = [_seconds(r) * r.stage.spec.resources.cpus * r.stage.spec.resources.size for r in done]
    gpus = [_seconds(result) * result.stage.spec.resources.gpus for result in done]
    watts = [BOARD_WATTS.get(result.device or "") for result in done]
    known = all(power is not None for power, used in zip(watts, gpus, strict=True) if used)
    of_gpus = sum(used * (power or 0) for used, power in zip(gpus, watts, strict=True))
    return Cost(
        stages=len(done),
        seconds=sum(map(_seconds, done)),
        core_seconds=sum(cores),
        gpu_seconds=sum(gpus),
        tokens=sum(r.stage.cost.tokens or 0 for r in done if r.stage.spec.trains),
        joules=WATTS_PER_CORE * sum(cores) + of_gpus if known else None,
    )


def _seconds(result: StageResult) -> float:
    return 0.0 if result.taken is None else result.taken.seconds
