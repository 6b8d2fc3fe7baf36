"""The prepared data that a stage reads, as MLflow's inputs of its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fope_lab.data.roles import text_role, validation_role
from fope_lab.store import Store
from fope_lab.sweep.made_by import output_digest
from fope_lab.tracking.view import StageOutline

DIGEST_LENGTH = 36
"""MLflow's limit for the digest of a dataset, in characters."""
NAME_LENGTH = 500
"""MLflow's limit for the name of a dataset, in characters."""
TRAINING, VALIDATION = text_role(0).partition(".")[0], validation_role(0).partition(".")[0]


class Dataset(NamedTuple):
    """A dataset: `context` says what for it is read, and `place` is its folder in the store."""

    name: str
    digest: str
    context: str
    place: str


def datasets(
    stage: StageOutline, stages: Mapping[str, StageOutline], store: Store
) -> list[Dataset]:
    """The prepared data that a stage reads, as far as they are in the store.

    `stages` has the stages of the sweep by key. The digest is that of the tokens.
    """
    trains = "train" in stage.config
    contexts = {TRAINING: "training" if trains else "evaluation", VALIDATION: "validation"}
    found = []
    for role, key in stage.parents.items():
        context, parent = contexts.get(role.partition(".")[0]), stages.get(key)
        if context is None or parent is None:
            continue
        digest = output_digest(store.folder(parent.kind, key))
        if digest is not None:
            name = parent.label.removeprefix(f"{parent.section}[").removesuffix("]")
            place = f"{parent.kind}/{key}"
            found.append(Dataset(name[:NAME_LENGTH], digest[:DIGEST_LENGTH], context, place))
    return found
