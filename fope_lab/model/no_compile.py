"""Functions that torch.compile must not compile: long loops, and functions that read data."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def no_compile(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate as `torch.compiler.disable` does, but import the compiler only when needed."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            disabled: Callable[P, R] = torch.compiler.disable(function)
            return disabled(*args, **kwargs)
        return function(*args, **kwargs)

    return call
