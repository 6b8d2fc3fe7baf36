"""Signs of other languages, which a claim writes in another way."""

from __future__ import annotations

import re

from fope_lab.sweep.claims.reader import ClaimError

EQUAL = "~ and a margin, as in a ~ b within 1%"
OTHER_SIGNS = {
    "==": f"{EQUAL}, or axis=value",
    **dict.fromkeys(("~=", "=~", "≈", "≃"), EQUAL),
    **dict.fromkeys(("!=", "≠", "<>"), "> or <"),
    **dict.fromkeys(("≤", "=<"), "<="),
    **dict.fromkeys(("≥", "=>"), ">="),
}
"""How other languages write a sign, and what a claim has for it."""
# Not the =~ of axis=~/folder.
_SIGN = re.compile("|".join(OTHER_SIGNS).replace("=~", r"=~(?=\s)"))
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
_BRACKETS = re.compile(r"\([^()]*\)")


def other_sign(text: str) -> str:
    """The first of OTHER_SIGNS in a text, outside quotes and brackets; empty if there is none."""
    plain = _QUOTED.sub("", text)
    while (without := _BRACKETS.sub("", plain)) != plain:
        plain = without
    found = _SIGN.search(plain)
    return found[0] if found else ""


def refuse_other_signs(text: str) -> None:
    """Raise ClaimError if a claim has one of OTHER_SIGNS."""
    if sign := other_sign(text):
        raise ClaimError(f"found {sign} where a claim has {OTHER_SIGNS[sign]}")
