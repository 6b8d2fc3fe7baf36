"""Two sweeps beside each other: at a terminal, as Markdown, as JSON, and as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console

from fope_lab.report.compare.cell_pairs import difference_of
from fope_lab.report.compare.match_sweeps import MatchedCell
from fope_lab.report.pair import Pair, Side
from fope_lab.report.render.html import page_environment, page_style
from fope_lab.report.render.json import difference_json
from fope_lab.report.render.markdown import escaped, table_markdown
from fope_lab.report.render.pair_tables import pair_tables, sections, shortened, summary_lines
from fope_lab.report.render.terminal import print_table
from fope_lab.report.results.aggregate import Cell, json_value


def print_pair(pair: Pair, console: Console) -> None:
    """Print the tables, and what differs beside the numbers."""
    for table in pair_tables(pair):
        print_table(table, console)
        console.print()
    for line in _lines(pair):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _lines(pair: Pair) -> Iterator[str]:
    yield from summary_lines(pair)
    for title, lines in sections(pair):
        yield f"{title}:"
        yield from (f"  {line}" for line in shortened(lines))


def pair_markdown(pair: Pair) -> str:
    """Render the comparison as Markdown."""
    parts = [f"# {escaped(title_of(pair))}"]
    parts += ["\n".join(f"- {escaped(line)}" for line in summary_lines(pair))]
    for table in pair_tables(pair):
        parts += [f"## {escaped(table.title)}", table_markdown(table), escaped(table.bold_legend)]
    for title, lines in sections(pair):
        parts += [f"## {title}", "\n".join(f"- {escaped(line)}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def pair_html(pair: Pair) -> str:
    """Render the comparison as a page that contains its style, and loads nothing."""
    return (
        page_environment()
        .get_template("pair.html.j2")
        .render(
            title=title_of(pair),
            style=page_style(),
            generated=pair.generated,
            summary=list(summary_lines(pair)),
            tables=pair_tables(pair),
            sections=sections(pair),
        )
    )


def pair_json(pair: Pair) -> str:
    """Render the comparison as JSON text without NaN and infinity."""
    content = {
        "first": _side(pair.first),
        "second": _side(pair.second),
        "generated": pair.generated.isoformat(timespec="seconds"),
        "cells": [_cell(cell) for cell in pair.cells],
        "settings": [asdict(change) for change in pair.settings],
        "code": [asdict(change) for change in pair.code],
    }
    return json.dumps(json_value(content), indent=1, ensure_ascii=False, allow_nan=False)


def title_of(pair: Pair) -> str:
    """The names of both sweeps."""
    return f"{pair.first.name} and {pair.second.name}"


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "sweep": side.sweep.name,
        "path": str(side.sweep.path),
        "commit": side.commit,
        "store": str(side.store.root),
    }


def _cell(cell: MatchedCell) -> dict[str, Any]:
    both = cell.first is not None and cell.second is not None
    return {
        "stage": cell.section,
        "metric": cell.cell.metric.name,
        "x": cell.x,
        "axes": dict(cell.axes),
        "first": _values(cell.first),
        "second": _values(cell.second),
        "difference": difference_json(difference_of(cell.first, cell.second))
        if both and cell.first and cell.second
        else None,
    }


def _values(cell: Cell | None) -> dict[str, Any] | None:
    if cell is None:
        return None
    values = [{"seed": v.seed, "value": v.value, "key": v.key} for v in cell.values]
    return {**asdict(cell.estimate), "values": values}
