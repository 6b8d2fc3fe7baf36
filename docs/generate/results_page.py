"""The results page: what each committed report says, made into tables and figures."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping
from typing import Any

from docs.generate.markdown import block, plain, table
from docs.generate.results import Group, Result, all_results, row_name
from fope_lab.drawing.plot import Curve, Panel, draw_panel, length_label
from fope_lab.drawing.svg import assign_looks, inline_svg
from fope_lab.report.render.figures import shown_number
from fope_lab.stages.labels import split_label

TRAINING = ("pretrain", "extend", "finetune")
MARKS = {"holds": "✓", "fails": "✗", "undecided": "?", "not trained": "–"}


def page(_: str) -> str:
    """All committed results."""
    return "\n\n".join(_section(result) for result in all_results())


def front(_: str) -> str:
    """The figures of the first result."""
    return "".join(_figures(result, "front") for result in all_results()[:1])


def _section(result: Result) -> str:
    report = result.report
    made = f"Made at commit `{result.commit}`: {_counts(report['counts'])}.{_times(report)}"
    parts = [f"## {report['sweep']['name']}", plain(report["sweep"]["description"])]
    if any(result.other_stages):
        parts.append(_changed(*result.other_stages))
    parts += [made, block(result.command, "sh"), _figures(result, "results")]
    if report["claims"]:
        parts.append(_claims(result))
    if report["beside"]:
        parts.append(_paper(report["beside"]))
    for group in result.groups:
        parts += [_table(group), *_seeds(group)]
    parts += _trainings(report)
    words = result.words_of_numbers if report.get("analyses") else {}
    parts += [_analysis(one, words[one["stage"]]) for one in report.get("analyses", ())]
    return "\n\n".join(parts)


def _changed(other: int, missing: int) -> str:
    """What of a result is not of the sweep file as it is now."""
    return (
        f"The sweep file has changed since this run: it no longer has {other} of these stages, and"
        f" this result lacks {missing} of those that it has now."
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} stages {word}" for word, n in counts.items() if word != "total" and n)


def _times(report: Mapping[str, Any]) -> str:
    """How long trainings took, where the report says so."""
    seconds = [s["seconds"] for s in report["stages"] if s["kind"] in TRAINING and "seconds" in s]
    if not seconds:
        return ""
    middle, most = (_minutes(value) for value in (statistics.median(seconds), max(seconds)))
    return f" A training took {middle} (the median) and at most {most}, beside other work."


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f}&nbsp;s" if seconds < 100 else f"{seconds / 60:.1f}&nbsp;min"


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
        x_label=group.metric.axis.label if group.metric.axis else "",
        y_label=group.metric.label,
        curves=tuple(curves),
        ticks={x: length_label(x) for x in group.xs if x},
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


def _seeds(group: Group) -> list[str]:
    """The value of every seed, folded up; nothing for a single seed."""
    header = ["model", "seed", *("value" if x is None else f"{x:,}" for x in group.xs)]
    rows = []
    for name, cells in group.rows.items():
        values = {x: {v["seed"]: v["value"] for v in cell["values"]} for x, cell in cells.items()}
        for seed in dict.fromkeys(seed for of_x in values.values() for seed in of_x):
            found = (values.get(x, {}).get(seed) for x in group.xs)
            shown = ("–" if value is None else group.metric.format(value) for value in found)
            rows.append([plain(name), str(seed), *shown])
    if len({row[1] for row in rows}) < 2:
        return []
    return [_folded(f"{group.title}: every seed", header, rows)]


def _trainings(report: Mapping[str, Any]) -> list[str]:
    """The last step and the time of every training, folded up, where the report has the steps."""
    rows = [
        [plain(one["name"]), f"{one['steps']:,}", _minutes(one["seconds"])]
        for one in report["stages"]
        if one["kind"] in TRAINING and one.get("steps")
    ]
    return [_folded("Every training", ["training", "last step", "time"], rows)] if rows else []


def _folded(title: str, header: list[str], rows: list[list[str]]) -> str:
    """A table that opens at a click."""
    lines = "\n".join(f"    {line}" for line in table(header, rows).splitlines())
    return f'??? note "{title}"\n\n{lines}'


def _analysis(found: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """The numbers of an analysis, in the words that it has for them."""
    notes = f"{plain(found['source'])}. The paper: {plain(found['says'])}"
    rows = [
        (plain(words.get(name, name.replace("_", " "))), shown_number(number))
        for name, number in found["numbers"].items()
    ]
    return f"### {plain(found['stage'])}\n\n{notes}\n\n{table(('number', 'value'), rows)}"


def _claims(result: Result) -> str:
    """The verdicts, below the sentences that the sweep file gives its claims today."""
    tables = []
    for basis, claims in itertools.groupby(
        result.report["claims"], lambda claim: result.bases.get(claim["text"])
    ):
        words = "" if basis is None else f"> {plain(str(basis))}\n\n"
        tables.append(words + _verdicts(list(claims)))
    return "\n\n".join(["### Claims", *tables])


def _verdicts(claims: list[Mapping[str, Any]]) -> str:
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
    return table(header, rows)


def _paper(paper: Mapping[str, Any]) -> str:
    rows = [
        (
            plain(str(c["row"])),
            plain(str(c["column"])),
            _number(c["paper"]),
            _number(c["mean"]),
            "–" if c["ci95"] is None else " to ".join(map(_number, c["ci95"])),
            str(c["n"]),
        )
        for c in paper["comparisons"]
    ]
    header = ("row", "column", "published", "ours", "95 % interval", "seeds")
    says = "".join(f"\n- {plain(text)}" for text in paper["says"])
    source = f"{plain(paper['source'])}: {plain(paper['title'])}"
    head = f"### Beside the published numbers\n\n{source}\n{says}"
    parts = [head, *([table(header, rows)] if rows else ()), *map(plain, paper.get("notes", ()))]
    return "\n\n".join(parts)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
