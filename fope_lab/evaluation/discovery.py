"""Finds the evaluations: each module or folder of this package that defines one."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from fope_lab.evaluation.base import Evaluation


@functools.cache
def evaluations() -> tuple[type[Evaluation], ...]:
    """Every evaluation, in the order of its file's name.

    A class of another file, or one that says no `kind` of its own (a base class), is left out.
    """
    package = importlib.import_module("fope_lab.evaluation")
    names = [
        f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)
    ]
    return tuple(
        value
        for name in names
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type)
        and issubclass(value, Evaluation)
        and value.__module__ == name
        and "kind" in vars(value).get("__annotations__", {})
    )
