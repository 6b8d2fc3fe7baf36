"""What `fope-lab status` prints of the stages of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fope_lab.orchestration.failures import States
from fope_lab.orchestration.live_screen import STYLES, cut, summary
from fope_lab.orchestration.progress_view import progress_cells, state_text
from fope_lab.stages.labels import distinguish
from fope_lab.store import Store
from fope_lab.store.state import IMPORTANCE
from fope_lab.sweep.graph import Stage

REASON_WIDTH = 44
"""The most characters of a reason in the table; the causes below it are printed whole."""


def states_table(
    stages: Sequence[Stage], states: States, store: Store, limit: int | None = None
) -> Table:
    """A table of all stages, or of the `limit` most important ones, under their counts."""
    shown = sorted(stages, key=lambda stage: IMPORTANCE.index(states[stage.key].status))[:limit]
    table = Table(title=summary(states), title_justify="left", box=None, pad_edge=False)
    table.add_column("stage", overflow="fold")
    table.add_column("state")
    for name in ("step", "loss", "speed", "time"):
        table.add_column(name, justify="right")
    labels = distinguish(stages)
    for stage in shown:
        state = states[stage.key]
        text = Text(state_text(state), style=STYLES[state.status])
        *numbers, last = progress_cells(stage, state, store)
        table.add_row(Text(labels[stage.key]), text, *numbers, Text(cut(last, REASON_WIDTH)))
    if len(shown) < len(stages):
        table.add_row(f"… and {len(stages) - len(shown)} more")
    return table
