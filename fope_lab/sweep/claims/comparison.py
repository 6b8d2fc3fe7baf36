"""What a claim compares in its sweep, for each combination of the axes that it leaves open."""

from __future__ import annotations

from dataclasses import dataclass

from fope_lab.sweep.claims.contrast import Combination
from fope_lab.sweep.claims.grammar import Claim
from fope_lab.sweep.claims.selection import Catalogue, Selected
from fope_lab.sweep.claims.statements.base import Scope


@dataclass(frozen=True)
class Comparison:
    """A claim that its sweep can answer."""

    claim: Claim
    selected: Selected
    combinations: tuple[Combination, ...]


def compare(claim: Claim, catalogue: Catalogue) -> Comparison:
    """Return what a claim compares. Raises ClaimError if the sweep can't answer the claim."""
    selected = catalogue.find(claim.quantity)
    scope = Scope(selected, claim.at, claim.where)
    return Comparison(claim, selected, tuple(claim.statement.compare(scope)))
