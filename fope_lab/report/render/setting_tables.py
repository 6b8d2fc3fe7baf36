"""Tables over a setting of a training: a row for each method, a column for each value."""

from __future__ import annotations

from fope_lab.report.compare.own_settings import OPTIMISTIC
from fope_lab.report.render.difference_tables import axis_notes
from fope_lab.report.render.tables import (
    CHOSEN,
    NOTHING,
    Table,
    TableColumn,
    TableEntry,
    TableRow,
    cell_text,
    seed_notes,
)
from fope_lab.report.results.over_settings import SettingGroup
from fope_lab.stages.labels import label


def setting_table(group: SettingGroup) -> Table:
    """The table of a group; what a selection took is marked."""
    rows: list[TableRow] = []
    panel = ""
    for series in group.series:
        points = {point.value: point for point in series.points}
        entries = tuple(
            TableEntry(
                cell_text(group.metric, points[value].cell),
                False,
                points[value].cell,
                chosen=points[value].chosen,
            )
            if value in points
            else TableEntry(NOTHING, False, None)
            for value in group.values
        )
        seeds = min(len(point.cell.values) for point in series.points)
        starts = bool(rows) and series.panel != panel
        rows.append(TableRow(series.axis_values or (series.label,), str(seeds), entries, starts))
        panel = series.panel
    return Table(
        title=group.title,
        labels=group.axes or ("model",),
        columns=tuple(TableColumn(label(value), False) for value in group.values),
        rows=tuple(rows),
        notes=(f"Columns: {group.name} of {group.trained}.", *setting_notes(group)),
    )


def setting_notes(group: SettingGroup) -> list[str]:
    """What the numbers are, and what was chosen."""
    cells = [point.cell for series in group.series for point in series.points]
    notes = [note for note in axis_notes(group.metric) if not note.startswith("Columns")]
    if any(cell.estimate.ci95 for cell in cells):
        notes.append("±: half of the 95 % interval over seeds (Student's t).")
    notes += seed_notes(cells)
    if any(point.chosen for series in group.series for point in series.points):
        by = (group.by or "").replace("_", " ")
        notes.append(f"{CHOSEN} chosen: the least mean {by} over the seeds. {OPTIMISTIC}")
        notes += edge_notes(group)
    elif group.by is not None and not any(cell.missing for cell in cells):
        notes.append("None is chosen yet.")
    return notes


def edge_notes(group: SettingGroup) -> list[str]:
    """A note on the series whose chosen value is the least or the largest of its candidates."""
    at_edge: dict[str, list[str]] = {}
    for series in group.series:
        for word, point in (("least", series.points[0]), ("largest", series.points[-1])):
            if point.chosen:
                name = f"{series.label} ({series.panel})" if series.panel else series.label
                at_edge.setdefault(word, []).append(name)
    return [
        f"Chosen is the {word} value of {', '.join(names)}: a better one may lie beyond the grid."
        for word, names in at_edge.items()
    ]
