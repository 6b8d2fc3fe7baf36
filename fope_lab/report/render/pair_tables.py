"""Two sweeps beside each other, as tables and lines that every renderer shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fope_lab.config.problems import counted
from fope_lab.report.compare.changes import UNKNOWN
from fope_lab.report.compare.match_sweeps import MatchedCell
from fope_lab.report.pair import Pair
from fope_lab.report.render.difference_tables import MEANING, axis_notes, columns, triple
from fope_lab.report.render.tables import Table, TableRow, shown_of
from fope_lab.report.results.axes import short_names
from fope_lab.stages.labels import stage_label
from fope_lab.stages.metric import LENGTH

MOST_LINES = 30
MOST_FILES = 8


def pair_tables(pair: Pair) -> tuple[Table, ...]:
    """A table for each metric of each section that both have, with three rows for each model."""
    groups: dict[tuple[str, str], list[MatchedCell]] = {}
    shown_as = {(c.section, c.cell.metric.name) for c in pair.matched}
    for cell in pair.matched:
        if (cell.section, cell.cell.metric.shown_as) not in shown_as:
            groups.setdefault((cell.section, cell.cell.metric.name), []).append(cell)
    return tuple(_table(pair, section, cells) for (section, _), cells in groups.items())


def _table(pair: Pair, section: str, cells: Sequence[MatchedCell]) -> Table:
    metric = cells[0].cell.metric
    series: dict[tuple[str, ...], list[MatchedCell]] = {}
    for cell in cells:
        series.setdefault(tuple(cell.axes.values()), []).append(cell)
    paths = list(cells[0].axes)
    varying = [i for i, _ in enumerate(paths) if len({values[i] for values in series}) > 1]
    names = short_names(paths)
    xs = shown_of(sorted({c.x for c in cells}, key=lambda x: (x is not None, x or 0)))
    trained = {each.trained_length for c in cells for each in (c.first, c.second) if each}
    rows: list[TableRow] = []
    for values, members in series.items():
        first = {c.x: c.first for c in members if c.first}
        second = {c.x: c.second for c in members if c.second}
        labels = [values[i] for i in varying] or [section]
        both = (pair.first.name, pair.second.name)
        rows += triple(labels, both, (first, second), metric, xs, rows)
    shared = [f"{names[p]} {v}" for p, v in cells[0].axes.items() if paths.index(p) not in varying]
    notes = axis_notes(metric)
    if shared:
        notes.append(f"The same in all rows: {'; '.join(shared)}.")
    return Table(
        title=f"{metric.label[:1].upper()}{metric.label[1:]} ({section})",
        labels=(*([names[paths[i]] for i in varying] or ["model"]), "sweep"),
        columns=columns(xs, set(trained) if metric.axis == LENGTH else set()),
        rows=tuple(rows),
        notes=(*notes, MEANING),
    )


def summary_lines(pair: Pair) -> Iterator[str]:
    """Which sweeps are compared, and how many results both have."""
    for side, (done, total) in zip((pair.first, pair.second), pair.done, strict=True):
        yield f"{side.name}: {side.source}; {done} of {total} stages are done"
    yield f"{counted(len(pair.matched), 'result')} in both are compared."


def changed_lines(pair: Pair) -> list[str]:
    """The settings that differ: section, field and both values."""
    return [
        f"{c.section}: {c.field}: {c.first} → {c.second} ({counted(c.stages, 'stage')})"
        for c in pair.settings
    ]


def code_lines(pair: Pair) -> list[str]:
    """How the code differs that made the stages of each section."""
    lines = []
    for change in pair.code:
        commits = f"{change.first} → {change.second}"
        if change.first == change.second:
            commits = "no commit was recorded" if change.first == UNKNOWN else f"at {change.first}"
        if change.files is None:
            files = "whether its code differs is not recorded"
        elif change.files:
            more = len(change.files) - MOST_FILES
            rest = f" and {more} more" if more > 0 else ""
            files = f"other code in {', '.join(change.files[:MOST_FILES])}{rest}"
        else:
            files = "the same code"
        lines.append("; ".join([f"{change.section}: {commits}", files, *change.packages]))
    return lines


def only_lines(pair: Pair) -> list[str]:
    """The results that one of the sweeps has alone, by their series."""
    lines: dict[str, None] = {}
    for side in (pair.first, pair.second):
        for cell in pair.only(side):
            name = stage_label(cell.section, cell.axes, None)
            xs = [c.x for c in pair.only(side) if _series(c) == _series(cell) and c.x is not None]
            at = f" at {', '.join(map(str, xs))}" if xs else ""
            lines[f"only in {side.name}: {cell.cell.metric.short_name} of {name}{at}"] = None
    return list(lines)


def sections(pair: Pair) -> list[tuple[str, list[str]]]:
    """What differs beside the numbers, under its titles; each with at least one line."""
    return [
        ("Settings that differ", changed_lines(pair) or ["No setting differs."]),
        ("Code that differs", code_lines(pair) or ["No difference of the code was recorded."]),
        *([("Results in one sweep only", lines)] if (lines := only_lines(pair)) else []),
    ]


def shortened(lines: Iterable[str], most: int = MOST_LINES) -> list[str]:
    """At most so many lines, and a count of the others."""
    lines = list(lines)
    more = len(lines) - most
    return lines if more <= 0 else [*lines[:most], f"and {more} more; the JSON lists them all"]


def _series(cell: MatchedCell) -> tuple[str, str, tuple[str, ...]]:
    return cell.section, cell.cell.metric.name, tuple(cell.axes.values())
