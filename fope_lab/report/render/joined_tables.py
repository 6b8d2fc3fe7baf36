"""Several single numbers of one stage in one table: a column for each, as of a task each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fope_lab.report.compare.training_history import TrainingHistory
from fope_lab.report.render.tables import GUESSING, Table, TableColumn, TableRow, build_table
from fope_lab.report.results.layout import MetricGroup


def build_tables(
    blocks: Sequence[MetricGroup], histories: Mapping[str, TrainingHistory]
) -> tuple[Table, ...]:
    """A table for each curve's block, and one for all single numbers of a stage that say the same
    of the same rows: all accuracies, all losses. The histories are those of the models."""
    groups: dict[object, list[tuple[MetricGroup, Table]]] = {}
    for index, block in enumerate(blocks):
        table = build_table(block, histories)
        rows = tuple((row.labels, row.seeds) for row in table.rows)
        single = (block.stage, _last(block), rows)
        groups.setdefault(single if block.metric.x is None else index, []).append((block, table))
    return tuple(_join(group) for group in groups.values())


def _join(group: Sequence[tuple[MetricGroup, Table]]) -> Table:
    if len(group) == 1:
        return group[0][1]
    block, first = group[0]
    notes = [note for _, table in group for note in table.notes if not note.startswith(GUESSING)]
    levels = [f"{_name(b)} {b.metric.format(b.chance)}" for b, _ in group if b.chance is not None]
    if levels:
        notes.append(f"{GUESSING}: {', '.join(levels)}.")
    return Table(
        title=f"{_last(block).capitalize()} ({block.stage})",
        labels=first.labels,
        columns=tuple(TableColumn(_name(one), False) for one, _ in group),
        rows=tuple(
            TableRow(
                row.labels,
                row.seeds,
                tuple(entry for _, table in group for entry in table.rows[place].entries),
                row.starts_panel,
            )
            for place, row in enumerate(first.rows)
        ),
        notes=tuple(dict.fromkeys(notes)),
    )


def _last(block: MetricGroup) -> str:
    """What kind of number it is: the last word of the metric."""
    return block.metric.label.split()[-1]


def _name(block: MetricGroup) -> str:
    """What it is of: the words before."""
    return block.metric.label.removesuffix(_last(block)).strip() or block.metric.label
