"""Functions that a stage's configuration names, so that planning need not import them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def load_function(name: str) -> Callable[..., Any]:
    """Import the function `name`, written as "module:function"."""
    module, _, function = name.partition(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return loaded
