"""What nodes a run has or may get, and what it asks of them: slots, and room for each stage.

This imports ray: call prepare_environment before.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import ray
import yaml
from ray import tune
from ray._private.state import state as global_state

from fope_lab.config.problems import UserError
from fope_lab.orchestration.trial import SLOT, WORKERS
from fope_lab.planning.schedule import TOLERANCE, Amounts, amounts, amounts_text
from fope_lab.sweep.graph import Stage

ROOM_SECONDS = 0.5
"""How often the cluster is asked what it has."""
AUTOSCALER_OPTION = "--autoscaling-config="
"""How the process that scales a cluster is told the file with the types of its nodes."""

ReadRoom = Callable[[], Amounts]
"""Returns what the cluster has of each resource."""


class ResourcesError(UserError):
    """No node can ever hold a stage."""


class NodeType(NamedTuple):
    """Nodes that are alike: what each has, and how many there can be."""

    name: str
    has: Amounts
    most: float


def placement(config: Mapping[str, Any], driver: str) -> tune.PlacementGroupFactory:
    """The placement group of a slot; `driver` is the address of this process's node."""
    if config[WORKERS] > 1:
        # The workers have a group of their own (trainers/distributed.py). The slot only waits for
        # them, beside the driver, since it must outlive their nodes.
        return tune.PlacementGroupFactory([{f"node:{driver}": 0.001}])
    return tune.PlacementGroupFactory([dict(config[SLOT])])


def require_nodes(stages: Sequence[Stage], types: Sequence[NodeType]) -> None:
    """Raises ResourcesError naming every stage for whose workers nodes of these types have no room,
    however many of them there will be."""
    found = []
    for stage in stages:
        size = stage.spec.resources.size
        wanted = {n: most / size for n, most in amounts(stage.spec.resources).items()}
        if sum(_held(wanted, of) for of in types) < size:
            each = f" for each of its {size} workers" if size > 1 else ""
            there = "; ".join(map(_described, types))
            found.append(f"{stage.label} needs {amounts_text(wanted)}{each}: {there}")
    if found:
        raise ResourcesError("\n".join(found))


def _held(wanted: Amounts, of: NodeType) -> float:
    """How many workers fit nodes of a type."""
    there = ((of.has.get(name, 0) + TOLERANCE) // amount for name, amount in wanted.items())
    return of.most * min(there)


def _described(of: NodeType) -> str:
    most = "" if of.most == 1 else f", {of.most:g} at most"
    return f"{of.name} has {amounts_text({'CPU': 0, 'GPU': 0} | dict(of.has))}{most}"


def this_machine() -> list[NodeType]:
    """The only node of a Ray of our own."""
    return [NodeType("this machine", ray.cluster_resources(), 1)]


def node_types() -> list[NodeType]:
    """What the autoscaler of the cluster may start, with the nodes that are there; nothing if there
    is no autoscaler, or it does not say."""
    reported = global_state.get_cluster_config()
    if reported is not None and reported.node_group_configs:
        found = [
            NodeType(
                of.name, dict(of.resources), float("inf") if of.max_count < 0 else of.max_count
            )
            for of in reported.node_group_configs
        ]
    else:
        config = _autoscaler_config()
        most = config.get("max_workers", float("inf"))
        found = [
            NodeType(name, of.get("resources", {}), min(of.get("max_workers", most), most))
            for name, of in config.get("available_node_types", {}).items()
        ]
    if not found or not all(of.has for of in found):  # what a provider fills in later
        return []
    there = [
        NodeType(f"node {node['NodeManagerAddress']}", node["Resources"], 1)
        for node in ray.nodes()
        if node["Alive"]
    ]
    return found + there


def _autoscaler_config() -> dict[str, Any]:
    """The file of the autoscaler of this cluster, which runs beside its head; {} elsewhere."""
    head = f"--gcs-address={ray.get_runtime_context().gcs_address}"
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        for word in words if head in words else []:
            if word.startswith(AUTOSCALER_OPTION):
                path = Path(word.removeprefix(AUTOSCALER_OPTION)).expanduser()
                with contextlib.suppress(OSError, yaml.YAMLError):
                    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))
    return {}


def seldom(read: ReadRoom) -> ReadRoom:
    """The same, but read from the cluster every ROOM_SECONDS at most."""
    known, until = read(), time.monotonic() + ROOM_SECONDS

    def room() -> Amounts:
        nonlocal known, until
        if time.monotonic() > until:
            known, until = read(), time.monotonic() + ROOM_SECONDS
        return known

    return room
