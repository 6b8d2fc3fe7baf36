"""The colour and marker of each curve, the same for a label in every figure of a report.

The presets that most sweeps compare have fixed colours, so that reports can be compared side by
side; any other label takes the next free colour. Each colour is a pair, for light and dark pages.
Colour is never the only cue: marker, dash and a name at the curve identify it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# (on white, on near-black), found by a search: a contrast of at least 3:1 with the page, and
# distinguishable with every kind of colour vision (tests/report/test_palette.py measures both).
COLOURS: tuple[tuple[str, str], ...] = (
    ("#172396", "#89a8fe"),  # blue
    ("#e8730b", "#bb5f2c"),  # orange
    ("#5ea364", "#8fe8a1"),  # green
    ("#8d959d", "#ecf4fd"),  # grey
    ("#560232", "#cc347b"),  # purple
    ("#664a00", "#f5b94d"),  # ochre
    ("#9a49e7", "#6358ac"),  # violet
    ("#005c71", "#56a8bf"),  # cyan
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES = ("-", "--", ":", "-.")
FAMILIAR = ("rope", "fope", "alibi", "nope", "kerple", "fire", "yarn", "p-rope")


@dataclass(frozen=True)
class Look:
    """The appearance of a curve; `colour` is an index into COLOURS."""

    colour: int
    marker: str
    dash: str


def assign_looks(labels: Iterable[str]) -> dict[str, Look]:
    """Assign a look to every label; up to len(COLOURS) · len(DASHES) labels are distinct."""
    labels = list(dict.fromkeys(labels))
    slots = {label: FAMILIAR.index(label) for label in labels if label in FAMILIAR}
    free = (i for i in range(len(labels) + len(COLOURS)) if i not in slots.values())
    count = len(COLOURS)
    looks = {}
    for label in labels:
        slot = slots[label] if label in slots else next(free)
        dash = DASHES[slot // count % len(DASHES)]
        looks[label] = Look(slot % count, MARKERS[(slot + slot // count) % len(MARKERS)], dash)
    return looks
