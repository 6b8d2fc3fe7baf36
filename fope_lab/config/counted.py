"""Numbers of things in words."""

from __future__ import annotations


def counted(number: int, noun: str = "stage") -> str:
    """A number of things: "1 stage", "1,200 stages"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
