"""Reports: tables and figures of a sweep from its plan and the store.

`build_report(plan, store, …)` reads; the `Report` it returns prints to a terminal, gives JSON, and
writes `report.html`, which needs nothing beside itself.
"""

from fope_lab.report.build import Report, build_report

__all__ = ["Report", "build_report"]
