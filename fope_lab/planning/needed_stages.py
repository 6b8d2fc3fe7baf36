"""Plans of sweeps that run together, with the stages whose seeds a rule leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fope_lab.report.claims.seeds import Needs, seed_needs, with_needs
from fope_lab.report.results.cells import StageResult, read_stage, unread
from fope_lab.store.root import Store
from fope_lab.store.state import NOT_STARTED, StageState
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.plan import Plan, plan


class NeededStates:
    """The needs of sweeps that run together: what one of them needs is needed."""

    def __init__(self, sweeps: Sequence[Sweep], store: Store | None) -> None:
        stages = {stage.key: stage for sweep in sweeps for stage in sweep.stages}
        by_way = (s for sweep in sweeps for found in sweep.by_section.values() for s in found)
        self._results = StoredResults({stage.key: stage for stage in by_way} | stages, store)
        self._needs = [seed_needs(sweep) for sweep in sweeps]
        self._ruled = any(sweep.seed_rule for sweep in sweeps)

    def of(self, states: Mapping[str, StageState]) -> Mapping[str, StageState]:
        """The states, in which what is not needed by now says so, and what is now needed waits.
        What is done or runs stays so. Without a rule, they are `states` itself."""
        if not self._ruled:
            return states
        self._results.update(states)
        found = [needs(self._results) for needs in self._needs]
        now = frozenset[str]().union(*(needs.now for needs in found))
        later = frozenset[str]().union(*(needs.later for needs in found))
        return with_needs(states, Needs(now, later))


class StoredResults(Mapping[str, StageResult]):
    """The results of stages by key, each read from the store once while it is done."""

    def __init__(self, stages: Mapping[str, Stage], store: Store | None) -> None:
        self._stages, self._store = stages, store
        self._states: Mapping[str, StageState] = {}
        self._done: dict[str, StageResult] = {}

    def update(self, states: Mapping[str, StageState]) -> None:
        """Take these states from now on; the store has those of other stages."""
        self._states = states
        self._done = {k: r for k, r in self._done.items() if k not in states or states[k].is_done}

    def __getitem__(self, key: str) -> StageResult:
        stage = self._stages[key]
        if self._store is None:
            return unread(stage, NOT_STARTED)
        if key not in self._done:
            folder = self._store.folder(stage.kind, key)
            state = self._states[key] if key in self._states else folder.state()
            if not state.is_done:
                return unread(stage, state)
            self._done[key] = read_stage(stage, folder, state)
        return self._done[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)


def plan_sweeps(sweeps: Sequence[Sweep], store: Store | None) -> list[Plan]:
    """As `fope_lab.sweep.plan` of each, with the states of stages that a rule leaves out."""
    plans = [plan(sweep, store) for sweep in sweeps]
    states = {key: state for planned in plans for key, state in planned.states.items()}
    needed = NeededStates(sweeps, store).of(states)
    return [replace(p, states={key: needed[key] for key in p.states}) for p in plans]
