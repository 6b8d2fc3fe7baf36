"""The fixtures of analyses' tests."""

from __future__ import annotations

from analysed import every_number_has_words, made_by_hand, reading

__all__ = ["every_number_has_words", "made_by_hand", "reading"]
