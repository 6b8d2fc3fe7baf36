"""Position embeddings for long contexts, compared: sweeps, their stages, and what came out.

The calls for scripts and notebooks; each imports what it needs when it is first used:

    load_sweep       read and check a sweep file
    plan             what a run would do, given what the store holds
    run              run what the store lacks
    results          the numbers of a sweep's finished stages, as a pandas frame
    compare          the comparison of a sweep's results so far: tables, figures, claims
    watch            that comparison, kept up to date in a notebook while a run is at work
    load_model       a model of a checkpoint, or of a Hugging Face model
    build_embedding  a position embedding as a torch module
    analyses         all analyses by name
    load_plugins     code of one's own: embeddings, evaluations, analyses and the like
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

    from fope_lab.analysis.base import Analysis
    from fope_lab.config.plugins import load_plugins
    from fope_lab.embeddings import build_embedding
    from fope_lab.embeddings.spec import Spec
    from fope_lab.model.decoder import Decoder
    from fope_lab.notebook import Comparison
    from fope_lab.store.root import Store
    from fope_lab.store.state import StageState
    from fope_lab.sweep import Plan, Sweep, load_sweep

    Place = str | os.PathLike[str] | Store
    """A store, or its folder."""
    File = str | os.PathLike[str]
    """The path of a sweep file."""
    analyses: Mapping[str, type[Analysis]]
    """Every analysis by name: a dataclass of options, with `compute` and `draw`."""

__all__ = [
    "analyses",
    "build_embedding",
    "compare",
    "load_model",
    "load_plugins",
    "load_sweep",
    "plan",
    "results",
    "run",
    "watch",
]

_HOMES = {
    "build_embedding": "fope_lab.embeddings",
    "load_plugins": "fope_lab.config.plugins",
    "load_sweep": "fope_lab.sweep",
}
"""The modules of the names that are imported when they are first used."""


def __getattr__(name: str) -> Any:
    if name == "analyses":
        from fope_lab.analysis.base import ANALYSIS_TYPES

        return ANALYSIS_TYPES.all()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def plan(sweep: Sweep | File, store: Place | None = None) -> Plan:
    """What a run of a sweep would do, given what a store holds; it writes nothing.

    The default store is FOPE_LAB_STORE, or ./fope-store. Raises SweepError for a wrong file, and
    StoreError if the store is not a folder.
    """
    from fope_lab.planning.needed_stages import plan_sweeps

    place = _store(store)
    [planned] = plan_sweeps([_sweep(sweep, place)], place)
    return planned


def run(
    sweep: Sweep | File,
    store: Place | None = None,
    *,
    tracking_uri: str | None = None,
    address: str | None = None,
    device: str | None = None,
    redo: Sequence[str] = (),
    redo_stale: bool = False,
) -> Mapping[str, StageState]:
    """Run every stage of a sweep that a store lacks, as `fope-lab run` does.

    The defaults are those of the command: FOPE_LAB_STORE or ./fope-store, MLFLOW_TRACKING_URI or a
    database in the store, and RAY_ADDRESS or a local cluster. `device` names the GPUs of the
    cluster, `redo` the stages to re-run by their name or key, and `redo_stale` adds those whose
    code has changed since they ran.

    Returns the states of the stages that failed or were blocked, by key: none if all are done.
    Raises SweepError for a wrong file or a stage that doesn't fit, and StoreError, TrackingError,
    ClusterError or ResourcesError for a missing cluster or resource.
    """
    from fope_lab.config.console import make_console
    from fope_lab.config.environment import default_address, default_tracking_uri
    from fope_lab.orchestration.cluster_address import checked_address
    from fope_lab.orchestration.run_sweeps import run_sweeps
    from fope_lab.tracking.uploads import Uploads

    place = _store(store)
    with Uploads() as uploads:
        return run_sweeps(
            [_sweep(sweep, place)],
            uploads,
            store=str(place),
            tracking_uri=default_tracking_uri() if tracking_uri is None else tracking_uri,
            address=checked_address(default_address() if address is None else address),
            console=make_console(),
            device=device,
            redo=redo,
            redo_stale=redo_stale,
        )


def results(sweep: Sweep | File, store: Place | None = None) -> pandas.DataFrame:
    """The numbers that the finished stages of a sweep measured, a row for each.

    fope_lab/report/results/frame.py describes the columns; `.attrs["unfinished"]` says of every
    stage without results why it has none. Where a rule for seeds counts some of them, the others
    have no row. The default store is FOPE_LAB_STORE, or ./fope-store.
    Raises SweepError for a wrong file, and StoreError if the store is not a folder.
    """
    from fope_lab.report.claims.seeds import counted_results
    from fope_lab.report.results.cells import read_stages
    from fope_lab.report.results.frame import results_frame

    place = _store(store)
    checked = _sweep(sweep, place)
    read = read_stages(checked.stages, place)
    return results_frame(counted_results(checked, read).counted)


def compare(sweep: Sweep | File, store: Place | None = None) -> Comparison:
    """The results so far of a sweep, compared as `fope-lab report` does.

    A notebook shows the whole page: tables, figures, claims, and the curves of trainings in
    progress, up to their last checkpoints. `print` gives the tables. `.report` holds the data. The
    default store is FOPE_LAB_STORE, or ./fope-store. Raises SweepError for a wrong file, and
    StoreError if the store is not a folder.
    """
    from fope_lab.notebook import compared

    place = _store(store)
    return compared(_sweep(sweep, place), place)


def watch(sweep: Sweep | File, store: Place | None = None, *, seconds: float = 10.0) -> None:
    """In a notebook, show what `compare` gives anew every so many `seconds`, as long as a run on
    this machine, such as `fope-lab run` in a terminal, is at work on the sweep."""
    from fope_lab.notebook import watched

    place = _store(store)
    watched(_sweep(sweep, place), place, seconds)


def load_model(
    path: str | os.PathLike[str], embedding: Spec | None = None, *, seed: int = 0
) -> Decoder:
    """Load a model as `fope_lab.model.load_model` does, which also explains the arguments.

    `path` may be a stage's folder, too, which means its final or newest checkpoint. Raises
    StoreError if a checkpoint no longer holds what was written.
    """
    from fope_lab import model
    from fope_lab.model.hub import hub_name
    from fope_lab.store.folder import find_checkpoint

    place = path if hub_name(path) else find_checkpoint(path, intact=True)
    return model.load_model(place, embedding, seed=seed)


def _store(store: Place | None) -> Store:
    from fope_lab.config.environment import default_store
    from fope_lab.store.root import Store

    return store if isinstance(store, Store) else Store.open(store or default_store())


def _sweep(sweep: Sweep | File, store: Store) -> Sweep:
    from fope_lab.sweep import Sweep, load_sweep

    return sweep if isinstance(sweep, Sweep) else load_sweep(os.fspath(sweep), store)
