"""Functions that torch.compile calls as they are: loops that it would unroll, looks at the data."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def no_compile(function: Callable[P, R]) -> Callable[P, R]:
    """As the decorator `torch.compiler.disable`, which would import the compiler here and now."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            as_it_is: Callable[P, R] = torch.compiler.disable(function)
            return as_it_is(*args, **kwargs)
        return function(*args, **kwargs)

    return call
