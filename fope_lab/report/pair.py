"""Two sweeps beside each other: their matched cells, and what else differs between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from fope_lab.config.problems import UserError
from fope_lab.report.claims.counted import read_counted
from fope_lab.report.compare.changes import (
    CodeChange,
    SettingChange,
    code_changes,
    pair_stages,
    setting_changes,
)
from fope_lab.report.compare.match_sweeps import MatchedCell, match_sweeps
from fope_lab.report.results.aggregate import build_cells
from fope_lab.store import Store
from fope_lab.sweep.graph import Sweep


class PairError(UserError):
    """Two sweeps can't be compared."""


@dataclass(frozen=True)
class Side:
    """One of two sweeps: its name in the comparison, its sweep and its store.

    `commit` is that of the file, None for the file as it is now.
    """

    name: str
    sweep: Sweep
    store: Store
    commit: str | None = None

    @property
    def source(self) -> str:
        """Where the sweep is from: its file, the file's commit, and the store."""
        at = f" at commit {self.commit}" if self.commit else ""
        return f"{self.sweep.path}{at}, store {self.store.root}"


@dataclass(frozen=True)
class Pair:
    """Two sweeps beside each other.

    `cells` has the cells of both, matched.
    """

    first: Side
    second: Side
    generated: datetime
    cells: tuple[MatchedCell, ...]
    done: tuple[tuple[int, int], tuple[int, int]]  # of each sweep, the finished stages and all
    settings: tuple[SettingChange, ...]
    code: tuple[CodeChange, ...]

    @cached_property
    def matched(self) -> tuple[MatchedCell, ...]:
        """The cells that both sweeps have."""
        return tuple(cell for cell in self.cells if cell.first and cell.second)

    def only(self, side: Side) -> tuple[MatchedCell, ...]:
        """The cells that one of the sweeps has alone."""
        if side is self.first:
            return tuple(cell for cell in self.cells if cell.second is None)
        return tuple(cell for cell in self.cells if cell.first is None)


def compare_sweeps(first: Side, second: Side) -> Pair:
    """Read both sweeps from their stores, and compare them.

    Raises PairError if nothing of them can be compared.
    """
    stages = [read_counted(side.sweep, side.store).counted for side in (first, second)]
    results = tuple({result.stage.key: result for result in of} for of in stages)
    if results[0].keys() == results[1].keys() and first.store.root == second.store.root:
        raise PairError(
            f"{first.name} and {second.name} have the same stages in the same store, so there is"
            " nothing to compare; name another sweep, a commit at which the file was different, or"
            " another store with --other-store"
        )
    both = (results[0], results[1])
    cells = match_sweeps(build_cells(stages[0]), build_cells(stages[1]), both)
    matched = [cell for cell in cells if cell.first and cell.second]
    if not matched:
        raise PairError(_nothing_in_common(first, second, cells))
    pairs = pair_stages(both)
    counts = [(sum(r.state.is_done for r in of), len(of)) for of in stages]
    return Pair(
        first=first,
        second=second,
        generated=datetime.now(UTC),
        cells=cells,
        done=(counts[0], counts[1]),
        settings=setting_changes(pairs, both),
        code=code_changes(pairs, (first.store, second.store)),
    )


def _nothing_in_common(first: Side, second: Side, cells: Sequence[MatchedCell]) -> str:
    """Why two sweeps have no cell in common: what each of them measures."""
    words = []
    for side, has in ((first, "first"), (second, "second")):
        own = [cell for cell in cells if getattr(cell, has) is not None]
        measured: Mapping[str, None] = dict.fromkeys(
            f"{cell.cell.metric.short_name} of {cell.section}" for cell in own
        )
        words.append(f"{side.name} has {', '.join(measured) or 'no results'}")
    return (
        f"{first.name} and {second.name} have no result in common, so there is nothing to compare:"
        f" {'; '.join(words)}. A result is matched by its section of the sweep file, its metric,"
        " its length, and its values on all axes"
    )
