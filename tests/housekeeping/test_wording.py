"""Ages and sizes in the unit that suits them."""

from __future__ import annotations

import pytest

from fope_lab.housekeeping.contents import age, moment, size_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (-3, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"),
     (172_800, "2 d")],
)  # fmt: skip
def test_an_age(seconds: float, text: str) -> None:
    assert age(1000.0 - seconds, now=1000.0) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KiB"), (1536, "1.5 KiB"), (10_240, "10 KiB"),
     (20 * 2**20, "20 MiB"), (3 * 2**40, "3.0 TiB")],
)  # fmt: skip
def test_a_size(size: int, text: str) -> None:
    assert size_text(size) == text


def test_a_moment_is_in_utc() -> None:
    assert moment(0) == "1970-01-01 00:00:00Z"
