"""Position embeddings for long contexts, compared: sweeps, their stages, and what came out.

What a script or a notebook needs, each imported when it is first used:

    load_sweep       read and check a sweep file
    plan             what a run would do, given what the store holds
    run              run what the store lacks
    results          the numbers of a sweep's finished stages, as a pandas frame
    load_model       a model of a checkpoint, or of a Hugging Face model
    build_embedding  a position embedding as a torch module
    analyses         all analyses by name
    load_plugins     code of one's own: embeddings, evaluations, analyses and the like
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fope_lab.api import analyses, load_model, load_sweep, plan, results, run
    from fope_lab.config.plugins import load_plugins
    from fope_lab.embeddings import build_embedding

__all__ = [
    "analyses",
    "build_embedding",
    "load_model",
    "load_plugins",
    "load_sweep",
    "plan",
    "results",
    "run",
]

_HOMES = {
    "build_embedding": "fope_lab.embeddings",
    "load_plugins": "fope_lab.config.plugins",
}
"""The modules of the names that fope_lab/api.py does not have."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "fope_lab.api")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
