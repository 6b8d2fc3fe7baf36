"""Reports: tables and figures of a sweep from its plan and the store.

`build_report(plan, store, …)` reads; the `Report` it returns prints to a terminal, gives JSON and
Markdown, and writes `report.html`, which needs nothing beside itself, with both of them beside it.
"""

from fope_lab.report.build import REPORT_FILES, Report, build_report
from fope_lab.report.numbers import report_numbers

__all__ = ["REPORT_FILES", "Report", "build_report", "report_numbers"]
