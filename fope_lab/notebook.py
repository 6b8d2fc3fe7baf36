"""What a notebook shows of a sweep: its comparison so far, with tables, figures and claims.

A plan shows itself (sweep/plan.py), and `fope_lab.results` is a frame of pandas, which does, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fope_lab.config.environment import default_tracking_uri, require_packages
from fope_lab.report.render.documents import render_html
from fope_lab.report.render.terminal import report_text

if TYPE_CHECKING:
    from fope_lab.report.build import Report
    from fope_lab.store.root import Store
    from fope_lab.sweep.graph import Sweep

HEIGHT = "44em"
"""How high the frame is in which a notebook shows a comparison."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """The results so far of a sweep, compared. In a notebook it shows its page, which has the
    curves of trainings in progress, too; printed, its tables."""

    report: Report

    def __str__(self) -> str:
        from rich.text import Text

        return Text.from_ansi(report_text(self.report)).plain

    def __repr__(self) -> str:
        return f"<Comparison {self.report.name}: {self.report.summary.headline}>"

    def _repr_html_(self) -> str:
        from markupsafe import escape

        # In a frame, its style and its script touch nothing of the notebook.
        page = escape(render_html(self.report))
        title = escape(f"{self.report.name}: comparison")
        style = f"width: 100%; height: {HEIGHT}; border: 0"
        return f'<iframe title="{title}" srcdoc="{page}" style="{style}"></iframe>'


def compared(sweep: Sweep, store: Store) -> Comparison:
    from fope_lab.orchestration.run_sweeps import report_of_sweep

    return Comparison(report_of_sweep(sweep, store, default_tracking_uri()).report)


def watched(sweep: Sweep, store: Store, seconds: float) -> None:
    """Show the comparison of a sweep anew every so many `seconds`, while a run is at work on it.
    Raises MissingPackageError outside Jupyter."""
    require_packages("fope_lab.watch", ["IPython"])
    from IPython.display import display

    from fope_lab.orchestration.drivers import drivers_of_recorded

    shown = display(compared(sweep, store), display_id=True)
    while drivers_of_recorded(store, sweep.name):
        time.sleep(seconds)
        shown.update(compared(sweep, store))
