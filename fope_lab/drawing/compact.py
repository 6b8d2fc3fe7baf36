"""Makes an SVG smaller by what nobody can see.

Coordinates are in pixels of a page. They keep hundredths, and those of long curves tenths. A long
curve keeps, of the points within a column of one pixel, the first and last, and the highest and
lowest: a line is wider than that, so it covers the others.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

Point = tuple[float, float]
LONG = 60
"""A path of straight lines with more points is a long curve."""
COLUMN = 1.0
"""The width in pixels of a column of which a long curve keeps up to four points."""
_STEP = re.compile(r"([MLz])([^A-Za-z]*)", re.IGNORECASE)
_STRAIGHT = re.compile(r"[MLz\d\s.,e+-]*")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}(?![\d.]*e)")
_NO_ROTATION = re.compile(r"^rotate\(-?0(?:\.0+)?[ ,][^)]*\)$")
NUMERIC = ("x", "y", "x1", "y1", "x2", "y2", "width", "height", "transform", "d", "points")
"""The attributes that hold coordinates."""
GROUP = "g"


def compact(root: ET.Element) -> None:
    """Shorten the numbers and paths of an <svg>, and leave out groups and space without effect."""
    for element in root.iter():
        for name in NUMERIC:
            if (value := element.get(name)) is not None:
                element.set(name, _path(value) if name == "d" else _LONG_NUMBER.sub(_round, value))
        if _NO_ROTATION.match(element.get("transform", "")):
            del element.attrib["transform"]
    _flatten(root)


def _path(text: str) -> str:
    """The data of a path; one that has more than straight lines keeps hundredths."""
    if not _STRAIGHT.fullmatch(text):
        return " ".join(_LONG_NUMBER.sub(_round, text).split())
    parts = []
    for points, closed in _subpaths(text):
        is_long = len(points) > LONG and not closed
        decimals = 1 if is_long else 2
        parts.append(_relative(thin_out(points) if is_long else points, decimals))
        if closed:
            parts.append("z")
    return "".join(parts)


def _subpaths(text: str) -> list[tuple[list[Point], bool]]:
    """The points of each subpath, and whether it is closed."""
    subpaths: list[tuple[list[Point], bool]] = []
    for command, numbers in _STEP.findall(text):
        if command in "Zz":
            subpaths[-1] = (subpaths[-1][0], True)
            continue
        values = [float(number) for number in numbers.split()]
        points = list(zip(values[::2], values[1::2], strict=True))
        if command == "M":
            subpaths.append((points, False))
        else:
            subpaths[-1][0].extend(points)
    return subpaths


def thin_out(points: Sequence[Point]) -> list[Point]:
    """Of points (x, y), those that a curve needs: of neighbours within a column of one pixel, the
    first and last, and the highest and lowest, in their order."""
    kept: list[Point] = []
    column: list[Point] = []
    for point in points:
        if column and int(point[0] // COLUMN) != int(column[0][0] // COLUMN):
            kept += _ends(column)
            column = []
        column.append(point)
    return kept + _ends(column)


def _ends(column: Sequence[Point]) -> list[Point]:
    heights = [y for _, y in column]
    places = {0, len(column) - 1, heights.index(min(heights)), heights.index(max(heights))}
    return [column[place] for place in sorted(places)]


def _relative(points: Sequence[Point], decimals: int) -> str:
    """A subpath in relative steps, whose rounding errors do not add up."""
    scale = 10**decimals
    rounded = [(round(x * scale), round(y * scale)) for x, y in points]
    at = rounded[0]
    parts = [f"M{_number(at[0], decimals)} {_number(at[1], decimals)}"]
    command = "M"
    for point in rounded[1:]:
        across, down = point[0] - at[0], point[1] - at[1]
        at = point
        if across == down == 0 and command != "M":
            continue
        before, command = command, "h" if down == 0 else "v" if across == 0 else "l"
        if command != before:
            parts.append(command)
        for value in [across, down] if command == "l" else [across or down]:
            number = _number(value, decimals)
            parts.append(number if _stands_apart(parts[-1], number) else f" {number}")
    return "".join(parts)


def _stands_apart(before: str, number: str) -> bool:
    """Whether a number needs no space after what is before it: a command, or another number."""
    return before in "hvl" or number[0] == "-" or (number[0] == "." and "." in before)


def _number(value: int, decimals: int) -> str:
    """`value` · 10**-decimals in as few characters as possible: .5, -3, 12.25."""
    text = f"{value / 10**decimals:.{decimals}f}".rstrip("0").rstrip(".")
    return re.sub(r"^(-?)0\.", r"\1.", text)


def _round(match: re.Match[str]) -> str:
    text = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _flatten(element: ET.Element) -> None:
    """Remove indentation, groups that say nothing, and paths that neither fill nor draw a line."""
    children = []
    for child in element:
        _flatten(child)
        child.tail = None
        if child.get("style") == "fill: none" and child.tag.endswith("path"):
            continue
        is_group = child.tag.rpartition("}")[2] == GROUP
        children += list(child) if is_group and not child.attrib else [child]
    if len(element) and not (element.text or "").strip():
        element.text = None
    element[:] = children
