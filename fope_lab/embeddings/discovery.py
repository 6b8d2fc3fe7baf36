"""Finds what this package defines: importing a module registers its embeddings and transforms."""

from __future__ import annotations

import functools
import importlib
import pkgutil

NEEDS_TORCH = ("module",)
"""Modules of this package that import torch, and define no embedding."""


@functools.cache
def discover() -> None:
    """Import every module of this package that may define something."""
    package = importlib.import_module("fope_lab.embeddings")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in NEEDS_TORCH:
            importlib.import_module(f"{package.__name__}.{module.name}")
