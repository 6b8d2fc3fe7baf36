"""Selection among trained models: reads what they measured, and leaves the chosen one.

The chosen model's files are linked, so that they take no room a second time: a store is one file
system, and needs links anyway. The manifest has their digests, as that of any checkpoint.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.config.problems import UserError
from fope_lab.data.roles import candidate_role
from fope_lab.stages import Select
from fope_lab.stages.internal import MEANS, SELECTED
from fope_lab.stages.labels import label
from fope_lab.stages.result import FORMAT, ResultRecord
from fope_lab.stages.training import TRAINING_RECORD
from fope_lab.store import RunWriter, StageFolder
from fope_lab.store.checkpoint import MANIFEST


class SelectionError(UserError):
    """No candidate can be chosen."""


def run(spec: Select, writer: RunWriter, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Choose a value by the candidates' losses, and leave the model that it has under the stage's
    seed; returns result.json, which has every loss.

    Raises SelectionError if a candidate did not measure the loss, or if no value has a finite one.
    """
    losses = {role: _loss(parents[role], spec.by) for roles in spec.roles() for role in roles}
    chosen = spec.chosen(losses)
    if chosen is None:
        raise SelectionError(f"{spec.by} is finite for no value of {spec.over} under every seed")
    source = parents[candidate_role(chosen, spec.seed)]
    writer.save_checkpoint(0, lambda directory: _link(source, directory))
    value, means = spec.values[chosen], spec.means(losses)
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    recorded = {
        SELECTED: {"value": value, "index": chosen},
        MEANS: [
            {"value": label(value), spec.by: mean if math.isfinite(mean) else None}
            for value, mean in zip(spec.values, means, strict=True)
        ],
    }
    name = spec.over.rpartition(".")[2]
    return ResultRecord(
        numbers={f"selected_{name}": float(value)} if numeric else {}, recorded=recorded
    ).as_json()


def _loss(checkpoint: Path, name: str) -> float:
    """What the stage that left a checkpoint measured as `name`."""
    folder = StageFolder.of_checkpoint(checkpoint)
    result = None if folder is None else folder.result()
    if result is not None and result.get("format") == FORMAT:
        for measured in ResultRecord.parse(result).metrics:
            if measured.name == name:
                return measured.value
    raise SelectionError(f"the result of {checkpoint.parents[1]} has no {name}; re-run that stage")


def _link(source: Path, directory: Path) -> None:
    """Give a folder the files of a model's checkpoint, without the record of its training."""
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_dir() or str(name) in (MANIFEST, TRAINING_RECORD):
            continue
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)
