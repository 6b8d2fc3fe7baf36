"""Which stages a sweep with a rule for its seeds needs, and the states that follow.

The answer follows from the results alone. So a run that is killed and started again decides as it
would have, and a later run with a larger `at_most` goes on where this one ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fope_lab.store import StageState, Status
from fope_lab.sweep.graph import Stage

NOT_YET = "its seed is added if the rule of `seeds` asks for it"
NOT_ASKED = "the rule of `seeds` does not ask for its seed"


@dataclass(frozen=True)
class Needs:
    """The stages that are needed now, by their keys, and those that may be needed later.

    `uncounted` are stages whose results belong in no mean: the rule counts other seeds.
    """

    now: frozenset[str]
    later: frozenset[str] = frozenset()
    uncounted: frozenset[str] = frozenset()


def with_needs(states: Mapping[str, StageState], needs: Needs) -> dict[str, StageState]:
    """Return the states, in which what is not needed by now says so, and what is needed waits.

    What is done or runs stays so.
    """
    found = {}
    for key, state in states.items():
        if state.status in (Status.DONE, Status.RUNNING):
            found[key] = state
        elif key in needs.now:
            waits = state.is_unneeded
            found[key] = replace(state, status=Status.WAITING, reason="") if waits else state
        elif key in needs.later:
            found[key] = replace(state, status=Status.IF_NEEDED, reason=NOT_YET)
        else:
            found[key] = replace(state, status=Status.NOT_NEEDED, reason=NOT_ASKED)
    return found


def needs_of(
    now: Iterable[str],
    later: Iterable[str],
    stages: Sequence[Stage],
    uncounted: frozenset[str] = frozenset(),
) -> Needs:
    """Return the needs with the ancestors of what is needed; `stages` come parents first.

    Stages that no seed concerns and that no stage needs are needed now: the file asks for them.
    """
    parents = {key for stage in stages for key in stage.parents.values()}
    whole = {stage.key for stage in stages if stage.seed is None and stage.key not in parents}
    needed = _with_ancestors({*now, *whole}, stages)
    return Needs(needed, _with_ancestors(later, stages) - needed, uncounted)


def _with_ancestors(keys: Iterable[str], stages: Sequence[Stage]) -> frozenset[str]:
    found = set(keys)
    for stage in reversed(stages):
        if stage.key in found:
            found.update(stage.parents.values())
    return frozenset(found)
