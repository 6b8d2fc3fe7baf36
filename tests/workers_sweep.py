"""A sweep whose trainings have two workers each, and what one worker alone makes of them."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from fope_lab.orchestration.trial import Order, run_until_ended
from fope_lab.stages.base import Resources
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.sweep.graph import Stage


def alone(stage: Stage, stages: Iterable[Stage], store: Store, root: Path) -> StageFolder:
    """The folder of one of the stages in another store, where a single worker has done it on the
    same data."""
    other = Store(root)
    shutil.copytree(store.root / "prepare-data", root / "prepare-data", dirs_exist_ok=True)
    spec = dataclasses.replace(stage.spec, resources=Resources())
    by_key = {one.key: one for one in stages} | {stage.key: dataclasses.replace(stage, spec=spec)}
    assert run_until_ended(Order(stage.key, by_key, "test"), other).is_done
    return other.folder(stage.kind, stage.key)


def losses(folder: StageFolder) -> list[float]:
    """The loss of each step, which must have one row each."""
    rows = [row for row in folder.rows() if "loss" in row.values]
    assert [row.step for row in rows] == list(range(1, len(rows) + 1))
    return [row.values["loss"] for row in rows]


def worker_processes(folder: StageFolder) -> list[list[int]]:
    """Of each attempt that came so far, the process of each worker by its number."""
    text = (folder.path / "log.txt").read_text() if (folder.path / "log.txt").exists() else ""
    lines = re.findall(r"workers \(\w+\): (.*)", text)
    return [[int(pid) for pid in re.findall(r":(\d+)", line)] for line in lines]
