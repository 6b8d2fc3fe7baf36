"""Which cell of a report a stage belongs to: the stages that differ only in their seed."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable

from fope_lab.tracking.names import NamedStage

PREFIX = "cell-"


def cell_keys(stages: Iterable[NamedStage]) -> dict[str, str]:
    """The key of the cell that each stage of a sweep belongs to, by the stage's key.

    A cell keeps its key when seeds are added. Stages that share their seed, too, belong to
    different cells.
    """
    seen: Counter[tuple[str, int | None]] = Counter()
    found = {}
    for stage in stages:
        place = json.dumps([stage.section, stage.axes], sort_keys=True)
        digest = hashlib.sha256(f"{place}\n{seen[place, stage.seed]}".encode()).hexdigest()
        seen[place, stage.seed] += 1
        found[stage.key] = f"{PREFIX}{digest[:20]}"
    return found
