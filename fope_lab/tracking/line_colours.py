"""Different colours for the lines of MLflow's charts; familiar embeddings keep theirs everywhere.

MLflow takes the colour of a group of runs from a palette of 29, by a sum over the characters of the
group's name, so that two lines of four easily have one colour. No setting of a view changes that.
So the tag by which a chart groups its runs ends in characters that nobody sees, such that the sum
gives the wanted colour. Sum and palette are MLflow's own and not documented, so nothing else here
knows them, and a browser tests them. In a version with others, colours are as they fall.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from fope_lab.drawing.palette import FAMILIAR

CURVE = "curve"
"""The tag by which charts group runs: the name of the line, and its invisible end."""
PALETTE = 29
"""The number of MLflow's colours."""
COLOURS = (26, 15, 7, 12, 2, 8, 3, 6, 1, 13, 9, 27, 24, 17, 4, 20)
"""Colours of that palette that are easily told apart, by their places. The first are those of the
familiar embeddings, near to what they have in our reports: blue, orange, green, grey and so on."""
UNSEEN = "\u200b\u200c\u200d\u2060"
"""Characters of no width: space, non-joiner, joiner and word joiner."""
LONGEST = 4
"""The most of them that are tried at the end of a name; with three, any colour is nearly sure."""


def curve_tags(lines: Iterable[str]) -> dict[str, str]:
    """The tag CURVE for each of the lines of a chart, by their names.

    Up to len(COLOURS) lines have different colours; further ones share them.
    """
    lines = list(dict.fromkeys(lines))
    slots = {line: FAMILIAR.index(line) for line in lines if line in FAMILIAR}
    free = (i for i in itertools.count() if i not in slots.values())
    wanted = {line: slots[line] if line in slots else next(free) for line in lines}
    return {line: _in_colour(line, COLOURS[slot % len(COLOURS)]) for line, slot in wanted.items()}


def colour_of_line(tag: str) -> int:
    """The place in MLflow's palette of the colour of the runs with this tag CURVE."""
    return colour_of_group(f"tag.{CURVE}.{tag}")


def colour_of_group(name: str) -> int:
    """The place in MLflow's palette of the colour of a group of runs, such as tag.seed.0.

    It is Fletcher's checksum of the characters (UTF-16), modulo the size of the palette.
    """
    first = second = 0
    for unit in memoryview(name.encode("utf-16-le")).cast("H"):
        first = (first + unit) % 255
        second = (second + first) % 255
    return (first | second << 8) % PALETTE


def _in_colour(line: str, colour: int) -> str:
    """The line's name with the shortest invisible end that gives it the colour, or as it is."""
    for length in range(LONGEST + 1):
        for end in itertools.product(UNSEEN, repeat=length):
            tag = line + "".join(end)
            if colour_of_line(tag) == colour:
                return tag
    return line
