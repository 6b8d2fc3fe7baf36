"""The results page, from reports that real runs left in docs/results.

Each file is what `fope-lab report --json` printed, with the command and the commit that made it
(docs/collect_results.py writes them). No number stands in a page of docs/pages.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from docs.generate.markdown import block, plain, table
from docs.generate.shipped import ROOT
from fope_lab.drawing.palette import assign_looks
from fope_lab.drawing.plot import Curve, Panel, draw_panel
from fope_lab.drawing.svg import inline_svg
from fope_lab.stages.labels import label, split_label
from fope_lab.stages.metric import Metric
from fope_lab.sweep import load_sweep

FOLDER = ROOT / "docs" / "results"
MARKS = {"holds": "✓", "fails": "✗", "undecided": "?", "not trained": "–"}
Cell = Mapping[str, Any]


@dataclass(frozen=True)
class Group:
    """The cells of one metric of one stage: a table, and a curve for each row of it."""

    stage: str
    metric: Metric
    rows: Mapping[str, Mapping[int | None, Cell]]
    trained: int | None
    own_name: bool  # whether the stage's name says no more than the metric's

    @property
    def xs(self) -> list[int | None]:
        """The points of the curves, in their order; [None] for a single number."""
        return sorted({x for row in self.rows.values() for x in row}, key=lambda x: x or 0)

    @property
    def title(self) -> str:
        """The metric, and the stage that measured it unless it has the metric's own name."""
        words = self.metric.label.capitalize()
        return words if self.own_name else f"{words} ({self.stage})"

    def value(self, cell: Cell | None) -> str:
        """The mean of a cell, with half the width of its interval over seeds."""
        if cell is None or cell["mean"] is None:
            return "–"
        interval = cell["ci95"]
        spread = None if interval is None else (interval[1] - interval[0]) / 2
        return self.metric.format(cell["mean"], spread)


@dataclass(frozen=True)
class Result:
    """A report of a sweep, with the command and the commit that made it."""

    sweep: str
    command: str
    commit: str
    report: Mapping[str, Any]

    @functools.cached_property
    def groups(self) -> list[Group]:
        """The tables of the report, in its order; curves over positions are left out."""
        stages = load_sweep(ROOT / self.sweep).stages
        metrics = {(s.section, m.name): m for s in stages for m in s.spec.metrics()}
        trained = {s["stage"]: s["train_length"] for s in self.report["stages"]}
        found: dict[tuple[str, str], list[Cell]] = {}
        for cell in self.report["cells"]:
            found.setdefault((cell["stage"], cell["metric"]), []).append(cell)
        shown = {key: metrics[key] for key in found if key in metrics}
        own = [(name, _says_no_more(stage, name)) for stage, name in found]
        return [
            Group(
                stage,
                metric,
                rows_of(found[stage, name]),
                trained.get(stage),
                own_name=_says_no_more(stage, name) and own.count((name, True)) == 1,
            )
            for (stage, name), metric in shown.items()
            if metric.shown_as is None
            and (metric.axis is None or metric.axis.name != "position")
            and (metric.mastery is not None or metric.unit == "perplexity")
        ]

    def standings(self, preset: str) -> Iterator[tuple[str, ...]]:
        """Rows about every model with an embedding, at the longest length of each table."""
        for group in self.groups:
            x = group.xs[-1]
            shown = {name: row[x] for name, row in group.rows.items() if x in row}
            means = [cell["mean"] for cell in shown.values() if cell["mean"] is not None]
            at = "" if x is None else f" at {x:,}"
            for name, cell in shown.items():
                if cell["mean"] is None or preset not in presets_of(cell["axes"]):
                    continue
                mean, lower = cell["mean"], group.metric.better == "lower"
                better = sum(other < mean if lower else other > mean for other in means)
                tied = " (tied)" if means.count(mean) > 1 else ""
                yield (
                    self.report["sweep"]["name"],
                    group.stage,
                    f"{group.metric.label}{at}",
                    plain(name),
                    group.value(cell),
                    f"{better + 1} of {len(means)}{tied}",
                )


def _says_no_more(stage: str, metric: str) -> bool:
    """Whether all words of a stage's name are in its metric's."""
    return set(stage.split("_")) <= set(metric.split("_"))


def rows_of(cells: list[Cell]) -> dict[str, dict[int | None, Cell]]:
    """The cells of a table by row and column. A row is named by the axes that vary in the table."""
    axes = dict.fromkeys(axis for cell in cells for axis in cell["axes"])
    vary = [a for a in axes if len({json.dumps(cell["axes"].get(a)) for cell in cells}) > 1]
    rows: dict[str, dict[int | None, Cell]] = {}
    for cell in cells:
        named = {axis: cell["axes"][axis] for axis in vary if axis in cell["axes"]}
        rows.setdefault(row_name(named or cell["axes"]), {})[cell["x"]] = cell
    return rows


def row_name(axes: Mapping[str, Any]) -> str:
    """The values of axes in words, each once: `yarn(factor=4), length 64`."""
    return ", ".join(dict.fromkeys(_named(*item) for item in axes.items())) or "all"


def _named(axis: str, value: Any) -> str:
    """A value of an axis. A number alone says nothing, so the setting's name is before it."""
    if isinstance(value, bool | int | float):
        return f"{axis.rpartition('.')[2]} {value:,}"
    return label(value)


def presets_of(axes: Mapping[str, Any]) -> set[str]:
    """The embeddings among the values of the axes: the last one is that of the model."""
    chosen = [v for axis, v in axes.items() if axis.endswith("embedding")]
    return {split_label(label(chosen[-1]))[0]} if chosen else set()


@functools.cache
def all_results() -> list[Result]:
    """Every committed result, in the order of their names; the quickstart comes first."""
    read = [Result(**json.loads(path.read_text("utf-8"))) for path in FOLDER.glob("*.json")]
    return sorted(read, key=lambda result: ("quickstart" not in result.sweep, result.sweep))


def page(_: str) -> str:
    """All committed results."""
    return "\n\n".join(_section(result) for result in all_results())


def front(_: str) -> str:
    """The figures of the first result."""
    return "".join(_figures(result, "front") for result in all_results()[:1])


def _section(result: Result) -> str:
    report = result.report
    made = f"Made at commit `{result.commit}`: {_counts(report['counts'])}."
    parts = [f"## {report['sweep']['name']}", plain(report["sweep"]["description"])]
    parts += [made, block(result.command, "sh"), _figures(result, "results")]
    if report["claims"]:
        parts.append(_claims(report["claims"]))
    if report["beside"]:
        parts.append(_paper(report["beside"]))
    parts += [_table(group) for group in result.groups]
    return "\n\n".join(parts)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} stages {word}" for word, n in counts.items() if word != "total" and n)


def _figures(result: Result, place: str) -> str:
    drawn = [
        _drawing(group, f"{place}-{result.report['sweep']['name']}-{i}")
        for i, group in enumerate(result.groups)
        if len(group.xs) > 1
    ]
    return f'<div class="figures">{"".join(drawn)}</div>' if drawn else ""


def _drawing(group: Group, name: str) -> str:
    names = {row: _short(row) for row in group.rows}
    looks = assign_looks(names.values())
    curves, values = [], []
    for row, cells in group.rows.items():
        points = [(x, c) for x, c in sorted(cells.items()) if x and c["mean"] is not None]
        y = tuple(c["mean"] for _, c in points)
        band = [c["ci95"] or (math.nan, math.nan) for _, c in points]
        low, high = (tuple(b[i] for b in band) for i in (0, 1))
        values += [value for value in (*y, *low, *high) if 0 <= value < math.inf]
        look = looks[names[row]]
        curves.append(Curve(names[row], look, tuple(x for x, _ in points), y, low, high))
    fraction = group.metric.is_fraction
    panel = Panel(
        title=group.title,
        x_label=group.metric.axis_label,
        y_label=group.metric.label,
        curves=tuple(curves),
        ticks=tuple(x for x in group.xs if x),
        log_y=not fraction and max(values) > 8 * min(values) > 0,
        y_range=(-0.03, 1.03) if fraction else (min(values) * 0.95, max(values) * 1.05),
        marks=(group.trained,) if group.trained else (),
    )
    svg = inline_svg(draw_panel(panel), name, panel.title, "Means over seeds, by context length.")
    return svg.replace("\n", " ")


def _short(row: str) -> str:
    """The names of a row's values without their options."""
    return ", ".join(dict.fromkeys(split_label(part)[0] for part in row.split(", ")))


def _table(group: Group) -> str:
    by = f" by {group.metric.by}" if group.metric.by else ""
    better = f"; {group.metric.better} is better" if group.metric.better else ""
    mark = {group.trained: "\N{NO-BREAK SPACE}†"}
    header = ["model", *("value" if x is None else f"{x:,}{mark.get(x, '')}" for x in group.xs)]
    rows = [
        [plain(name), *(group.value(row.get(x)).replace(" ", "&nbsp;") for x in group.xs)]
        for name, row in group.rows.items()
    ]
    seeds = max(cell["n"] for row in group.rows.values() for cell in row.values())
    of = f"{seeds} seeds: the mean and its 95 % interval" if seeds > 1 else "A single seed"
    title = f"### {group.title}{by}"
    return f"{title}\n\n{of}{better}.\n\n{table(header, rows)}"


def _claims(claims: list[Mapping[str, Any]]) -> str:
    where = any(claim["axes"] for claim in claims)
    rows = [
        (
            plain(claim["text"]),
            *([plain(row_name(claim["axes"]))] if where else []),
            f"{MARKS[claim['verdict']]}&nbsp;{claim['verdict']}",
            "" if claim["p"] is None else f"{claim['p']:.2g}",
            str(claim["n"]),
            plain(claim["reason"]),
        )
        for claim in claims
    ]
    header = ("claim", *(["where"] if where else []), "verdict", "p", "n", "why")
    return "### Claims\n\n" + table(header, rows)


def _paper(paper: Mapping[str, Any]) -> str:
    rows = [
        (plain(str(c["row"])), plain(str(c["column"])), _number(c["paper"]), _number(c["mean"]))
        for c in paper["comparisons"]
    ]
    says = "".join(f"\n- {plain(text)}" for text in paper["says"])
    head = f"### Beside the paper\n\n{plain(paper['source'])}: {plain(paper['title'])}\n{says}"
    return head + ("\n\n" + table(("row", "column", "paper", "ours"), rows) if rows else "")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
