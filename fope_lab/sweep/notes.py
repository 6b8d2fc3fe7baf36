"""What a command says of sweeps beside their stages: files that are gone, a name used twice, and
embeddings that no weights were trained with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fope_lab.config.problems import SweepError
from fope_lab.config.yaml_document import Document
from fope_lab.stages import SwapEmbedding
from fope_lab.store import Store
from fope_lab.sweep.graph import Sweep
from fope_lab.sweep.local_corpora import missing_note


def notes(sweeps: Sequence[Sweep], store: Store) -> list[str]:
    """A line for each thing that the user should know of the sweeps."""
    missing = missing_note(known for sweep in sweeps for known in sweep.missing_corpora)
    named = (name_note(sweep, store) for sweep in sweeps)
    untrained = (mechanism_note(sweep) for sweep in sweeps)
    return [note for note in (missing, *named, *untrained) if note]


def mechanism_note(sweep: Sweep) -> str | None:
    """One line about models that get an embedding of another mechanism without training."""
    swapped = {
        stage.label: stage.model_spec
        for stage in sweep.stages
        if isinstance(stage.spec, SwapEmbedding)
        and stage.model_spec is not None
        and stage.model_spec.trained_mechanism != stage.model_spec.embedding.name
    }
    if not swapped:
        return None
    (name, model), more = next(iter(swapped.items())), len(swapped) - 1
    others = f" (and {more} more)" if more else ""
    return (
        f"{name}{others}: the weights were trained with {model.trained_mechanism}, and"
        f" {model.embedding.name} is another mechanism, which no step of training adapts them to"
    )


def name_note(sweep: Sweep, store: Store) -> str | None:
    """A line about another file of the sweep's name with other content, whose report is stored."""
    other = store.sweep_file(sweep.name)
    if other is None or not _is_of_user(sweep.path, store) or not _is_of_user(other, store):
        return None
    try:
        same = other.samefile(sweep.path) or other.read_bytes() == sweep.path.read_bytes()
        content = None if same else Document(other).value
    except (OSError, SweepError):
        return None
    if not isinstance(content, dict) or content.get("name") != sweep.name:
        return None
    return (
        f"two sweep files have the name {sweep.name!r}: {sweep.path} and {other}. They share a"
        " report and an MLflow experiment; give one of them another name"
    )


def keep_file(sweep: str, path: Path, store: Store) -> None:
    """Remember which file the sweep of this name comes from."""
    if _is_of_user(path, store):
        store.keep_sweep_file(sweep, path)


def _is_of_user(path: Path, store: Store) -> bool:
    """Whether the file is there, and is no copy inside the store."""
    return path.is_file() and not store.contains(path)
