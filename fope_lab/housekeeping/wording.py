"""Moments, ages and sizes in the words that the store's commands print."""

from __future__ import annotations

import time

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def moment(seconds: float) -> str:
    """A time in seconds since the epoch, in UTC as in logs: 2026-01-31 09:05:00Z."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))


def age(since: float, now: float | None = None) -> str:
    """How long ago a time was, in the unit that suits it: 45 s, 12 min, 3 h, 5 d."""
    return span((time.time() if now is None else now) - since)


def span(seconds: float) -> str:
    """A duration in the largest unit of which it has two, else in seconds."""
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"


def size_text(size: float) -> str:
    """A number of bytes in the unit that suits it: 512 B, 1.5 KiB, 20 MiB."""
    for unit in _SIZES[:-1]:
        if size < 1000:
            return f"{size:.1f} {unit}" if size < 10 and unit != "B" else f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} {_SIZES[-1]}"
