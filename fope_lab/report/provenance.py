"""What produced a report and its stages: versions, commits, machine, to trace a number back."""

from __future__ import annotations

import os
import platform
from collections import Counter
from pathlib import PurePath

from fope_lab.provenance.checkout import Checkout, package_versions
from fope_lab.report.results.axes import unique_endings
from fope_lab.store import Store
from fope_lab.sweep import Sweep
from fope_lab.sweep.made_by import ChangesSince

NOT_RECORDED = "not recorded"
"""Stands for the commit of a stage that recorded none: it ran without a checkout."""


def provenance(sweep: Sweep, store: Store) -> dict[str, str]:
    """Versions, commit and machine of the report, and what the finished stages were made by.

    A commit has `+` if the code differed from it. `changed since` counts, for each file or
    parent that has changed, the stages that ran with it.
    """
    facts = {"sweep file": str(sweep.path), **package_versions()}
    if checkout := Checkout.current():
        facts["commit"] = str(checkout)
    facts["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPU cores"
    return facts | _makers(sweep, store)


def _makers(sweep: Sweep, store: Store) -> dict[str, str]:
    since = ChangesSince(store)
    stages = {stage.key: stage for stage in sweep.stages}
    commits: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    for stage in sweep.stages:
        folder = store.folder(stage.kind, stage.key)
        makers = folder.makers()
        commits.update({str(Checkout.recorded(made_by) or NOT_RECORDED) for made_by in makers})
        changed.update(since.of(stage, stages))
    names = unique_endings({path: PurePath(path).parts for path in changed})
    named = Counter({str(PurePath(*names[path])): count for path, count in changed.items()})
    facts = {"stages made at commit": _counts(commits), "changed since": _counts(named)}
    return {name: counts for name, counts in facts.items() if counts}


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counted.most_common())
