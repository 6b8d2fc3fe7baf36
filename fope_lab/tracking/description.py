"""The descriptions of runs: links to the runs that a run was made from, and to the mean over seeds.

The links name no server, so they lead to the pages that show them, and hold no password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fope_lab.tracking.experiment import Experiment
from fope_lab.tracking.links import VIEW
from fope_lab.tracking.view import Outline, StageOutline

TAG = "mlflow.note.content"
"""MLflow's tag for a description, which it shows as Markdown."""
PARENTS, CELL, MEMBERS = "Made from", "Mean over seeds", "Mean over"
"""The headings of the links to a stage's parents, to its cell, and to the members of a cell."""
MARKS = re.compile(r"[\\`*_\[\]<>]")
"""What Markdown would not show as it is."""
_RUN = r"#/experiments/\d+/runs/\w+(?:\?[\w=]+)?"
_PART = rf"(?:{PARENTS}|{CELL}|{MEMBERS}):\n(?:\n- [\w. ]+: \[.*\]\({_RUN}\))+"
OURS = re.compile(rf"{_PART}(?:\n\n{_PART})*")


class Link(NamedTuple):
    """A link to a run. `role` says what it is to the run that has the link."""

    role: str
    name: str
    run_id: str


class Descriptions:
    """The descriptions of the runs in the experiment of a sweep, as far as the runs exist."""

    def __init__(self, outline: Outline, experiment: Experiment) -> None:
        self._outline, self._experiment = outline, experiment
        self._seeds = {stage.key: f"seed {stage.seed}" for stage in outline.stages}

    def of_stage(self, stage: StageOutline) -> dict[str, str]:
        """The tag with the description of a stage's run: links to its parents and its cell."""
        parents = [self._link(role, key) for role, key in stage.parents.items()]
        cell = [self._link("cell", self._outline.cell_keys[stage.key])]
        return self._tag(stage.key, {PARENTS: parents, CELL: cell})

    def of_cell(self, key: str, members: Sequence[str]) -> dict[str, str]:
        """The tag with the description of the run of a cell, which links to its members."""
        return self._tag(key, {MEMBERS: [self._link(self._seeds[one], one) for one in members]})

    def _tag(self, key: str, parts: Mapping[str, Sequence[Link | None]]) -> dict[str, str]:
        """The tag of the run of a stage or cell; it stays as it is if a user has edited it."""
        run = self._experiment.runs.get(key)
        present = None if run is None else run.tags.get(TAG)
        if present is not None and is_of_user(present):
            return {TAG: present}
        known = {
            heading: [link for link in links if link is not None]
            for heading, links in parts.items()
        }
        text = description(self._experiment.experiment_id, known)
        return {} if text is None else {TAG: text}

    def _link(self, role: str, key: str) -> Link | None:
        run = self._experiment.runs.get(key)
        return None if run is None else Link(role, run.tags["mlflow.runName"], run.run_id)


def description(experiment_id: str, parts: Mapping[str, Sequence[Link]]) -> str | None:
    """A description with the links under each heading, or None if there are no links."""
    pages = f"#/experiments/{experiment_id}/runs"
    texts = [
        "\n".join(
            [
                f"{heading}:",
                "",
                *(
                    f"- {role}: [{escaped(name)}]({pages}/{run_id}?{VIEW})"
                    for role, name, run_id in links
                ),
            ]
        )
        for heading, links in parts.items()
        if links
    ]
    return "\n\n".join(texts) or None


def is_of_user(text: str) -> bool:
    """Whether a user wrote a description, or changed or emptied the one that was made here."""
    return OURS.fullmatch(text) is None


def escaped(text: str) -> str:
    """A text that Markdown shows as it is."""
    return MARKS.sub(lambda mark: f"\\{mark[0]}", text)
