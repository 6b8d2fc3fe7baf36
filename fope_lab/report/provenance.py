"""What produced a report and its stages: versions, commits, machine, to trace a number back."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from fope_lab.provenance.checkout import Checkout, package_versions
from fope_lab.store import Store
from fope_lab.sweep import Sweep
from fope_lab.sweep.made_by import CodeChanges

NOT_RECORDED = "not recorded"
"""What stages say of their commit that are older than its record, or made without a checkout."""


def provenance(sweep: Sweep, store: Store) -> dict[str, str]:
    """Versions, commit and machine of the report, and what the finished stages were made by.

    A commit has `+` if the code differed from it. `code changed since` counts the stages by the
    files that are not today's any more.
    """
    facts = {"sweep file": str(sweep.path), **package_versions()}
    if checkout := Checkout.current():
        facts["commit"] = str(checkout)
    facts["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPU cores"
    return facts | _makers(sweep, store)


def _makers(sweep: Sweep, store: Store) -> dict[str, str]:
    code = CodeChanges(store.root)
    commits: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    for stage in sweep.stages:
        folder = store.folder(stage.kind, stage.key)
        makers = folder.makers()
        commits.update({_commit(made_by) for made_by in makers})
        changed.update(PurePath(path).name for path in code.of(folder))
    facts = {"stages made at commit": _counts(commits), "code changed since": _counts(changed)}
    return {name: counts for name, counts in facts.items() if counts}


def _commit(made_by: Mapping[str, Any]) -> str:
    commit = made_by.get("commit")
    return NOT_RECORDED if commit is None else str(Checkout(commit, bool(made_by.get("clean"))))


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counted.most_common())
