"""Finds the analyses: importing a module of this package registers what it defines."""

from __future__ import annotations

import functools
import importlib
import pkgutil


@functools.cache
def discover() -> None:
    """Import every module of this package."""
    package = importlib.import_module("fope_lab.analysis")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
