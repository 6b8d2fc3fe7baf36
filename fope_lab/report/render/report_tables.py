"""All tables of a report, in the order in which every renderer shows them."""

from __future__ import annotations

from fope_lab.report.build import Report
from fope_lab.report.render.difference_tables import before_after_table
from fope_lab.report.render.setting_tables import setting_table
from fope_lab.report.render.tables import Table, build_tables


def report_tables(report: Report) -> tuple[Table, ...]:
    """The tables of the metrics, those of models before and after a change, and those over a
    setting of a training."""
    return (
        *build_tables(report),
        *map(before_after_table, report.before_after),
        *map(setting_table, report.table_settings),
    )
