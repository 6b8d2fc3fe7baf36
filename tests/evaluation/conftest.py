"""The parents of evaluations."""

from __future__ import annotations

from parents import parents

__all__ = ["parents"]
