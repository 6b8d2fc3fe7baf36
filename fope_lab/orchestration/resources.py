"""What a stage occupies on the cluster, and how many stages fit at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ray import tune

from fope_lab.sweep.resolve import Stage
from fope_lab.sweep.stages import Resources

CLUSTER_LOOKAHEAD = 64
"""Stages handed out at once on a cluster that may grow: its autoscaler sees what waits."""


class ResourcesError(Exception):
    """No node can ever hold a stage."""


class ClusterError(Exception):
    """There is no Ray cluster where one was asked for."""


def bundle(resources: Resources) -> dict[str, float]:
    """The stage's resources in Ray's names."""
    gpu = {"GPU": resources.gpus} if resources.gpus else {}
    return {"CPU": resources.cpus, **gpu}


def placement(resources: Resources) -> tune.PlacementGroupFactory:
    """The placement group of a stage that runs in its trial's own process."""
    return tune.PlacementGroupFactory([bundle(resources)])


def require_fit(stages: Sequence[Stage], available: Mapping[str, float]) -> None:
    """Raises ResourcesError naming every stage that asks for more than there is.

    For a machine of its own; a cluster may scale up to what a stage needs.
    """
    found = []
    for stage in stages:
        for name, amount in bundle(stage.spec.resources).items():
            if amount > available.get(name, 0):
                found.append(
                    f"{stage.name} needs {amount:g} {name}, this machine has "
                    f"{available.get(name, 0):g}"
                )
    if found:
        raise ResourcesError("\n".join(found))


def slots(stages: Sequence[Stage], available: Mapping[str, float]) -> int:
    """How many of the smallest stage fit at once, and at least one."""
    counts = [
        min(available.get(name, 0) // amount for name, amount in bundle(s.spec.resources).items())
        for s in stages
    ]
    return max(1, int(max(counts, default=1)))
