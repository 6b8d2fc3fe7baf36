"""Finds what a package defines: importing a module registers its classes."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from fope_lab.config.plugins import load_installed


@functools.cache
def discover(package: str, skip: tuple[str, ...] = ()) -> None:
    """Import every module of a package but those named in `skip`, then every installed plug-in."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if module.name not in skip:
            importlib.import_module(f"{package}.{module.name}")
    load_installed()
