"""The description of a run: links to the runs of its parents.

The links name no server, so they lead to the pages that show them, and hold no password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

TAG = "mlflow.note.content"
"""MLflow's tag for a description, which it shows as Markdown."""
MARKS = re.compile(r"[\\`*_\[\]<>]")
"""What Markdown would not show as it is."""
OURS = re.compile(r"Made from:\n(\n- [\w.]+: \[.*\]\(#/experiments/\d+/runs/\w+\))+")


def description(experiment_id: str, parents: Mapping[str, tuple[str, str]]) -> str | None:
    """The description of a run; `parents` has, by role, the name and the id of each parent's run.

    None if there are no parents.
    """
    pages = f"#/experiments/{experiment_id}/runs"
    lines = [
        f"- {role}: [{MARKS.sub(_escaped, name)}]({pages}/{run_id})"
        for role, (name, run_id) in parents.items()
    ]
    return "\n".join(["Made from:", "", *lines]) if lines else None


def is_of_user(text: str) -> bool:
    """Whether a user wrote a description, or changed or emptied the one that was made here."""
    return OURS.fullmatch(text) is None


def _escaped(mark: re.Match[str]) -> str:
    return f"\\{mark[0]}"
