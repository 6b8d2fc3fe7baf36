"""The fixtures of analyses' tests."""

from __future__ import annotations

from analysed import every_number_has_words, made_by_hand, reading
from parents import parents

__all__ = ["every_number_has_words", "made_by_hand", "parents", "reading"]
