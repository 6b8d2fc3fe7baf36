"""What a stage occupies on the cluster, and what the cluster has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ray import tune

from fope_lab.config.problems import UserError
from fope_lab.planning.capacity import Lookahead, amounts
from fope_lab.stages import Resources
from fope_lab.sweep.graph import Stage

CLUSTER_LOOKAHEAD = Lookahead(stages=64, groups=4)
"""On a cluster that may grow: its autoscaler sees what waits."""


class ResourcesError(UserError):
    """No node can ever hold a stage."""


def placement(resources: Resources, driver: str) -> tune.PlacementGroupFactory:
    """The placement group of a stage's trial; `driver` is the address of this process's node.

    One worker runs in the trial itself. Several have a group of their own, and the trial, which
    only waits for them, takes next to nothing. It does so beside the driver, since it must outlive
    the nodes of its workers (Ray would go on trying to place what is left of them, see
    trainers/distributed.py).
    """
    if resources.size > 1:
        return tune.PlacementGroupFactory([{f"node:{driver}": 0.001}])
    return tune.PlacementGroupFactory([amounts(resources)])


def require_nodes(stages: Sequence[Stage], available: Mapping[str, float]) -> None:
    """Raises ResourcesError naming every stage that asks for more than there is.

    For a machine of its own; a cluster may scale up to what a stage needs.
    """
    found = []
    for stage in stages:
        size = stage.spec.resources.size
        of_workers = f" for its {size} workers" if size > 1 else ""
        for name, amount in amounts(stage.spec.resources).items():
            if amount > available.get(name, 0):
                found.append(
                    f"{stage.label} needs {amount:g} {name}{of_workers}, this machine has "
                    f"{available.get(name, 0):g}"
                )
    if found:
        raise ResourcesError("\n".join(found))
