"""A run whose stages are done one after another in this process, where Ray is not what is tested.

The searcher, the trials, the store, MLflow and the reports are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from ray.tune.search import Searcher
from uploads_here import UploadsHere

from fope_lab.orchestration import controller, run_sweeps
from fope_lab.orchestration.controller import Watch
from fope_lab.orchestration.drivers import scratch_folder
from fope_lab.orchestration.searcher import StageSearcher
from fope_lab.orchestration.trial import REASON, STATUS, Order, run_until_ended
from fope_lab.planning.schedule import Capacity, Demand, Lookahead, amounts
from fope_lab.store.attempts import driver_name
from fope_lab.store.checkout import Checkout
from fope_lab.store.root import Store
from fope_lab.store.state import StageState
from fope_lab.sweep.graph import Stage

ROOM = {"CPU": 1.0}


def run_stages(
    stages: Sequence[Stage],
    store: Store,
    seconds: Mapping[str, float],
    *,
    watch: Watch,
    sweeps: Sequence[str],
    needed: Callable[[Mapping[str, StageState]], Mapping[str, StageState]],
    **_: Any,
) -> Mapping[str, StageState]:
    """As the controller's, which gives the stages to Ray."""
    owner, orders = driver_name(), dict[str, Order | None]()
    demands = {s.key: Demand(amounts(s.spec.resources), seconds[s.key], 1) for s in stages}
    capacity, give = Capacity(demands, lambda: ROOM, Lookahead()), orders.__setitem__
    searcher = StageSearcher(stages, store, owner, capacity, seconds, give, needed=needed)
    with scratch_folder(store, owner, sweeps), watch(searcher.states, lambda: ROOM, list):
        while (config := searcher.suggest("slot")) != Searcher.FINISHED:
            assert config is not None, "nothing runs, and nothing can start"
            searcher.on_trial_result("slot", {})  # it has started
            while (order := orders["slot"]) is not None:
                state = run_until_ended(order, store, Checkout.current())
                searcher.on_trial_result("slot", {STATUS: state.status, REASON: state.reason})
            searcher.on_trial_complete("slot")
    return searcher.states()


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `fope-lab run` do its stages in this process."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(controller, "run_stages", run_stages)
    monkeypatch.setattr(run_sweeps, "Uploads", UploadsHere)
