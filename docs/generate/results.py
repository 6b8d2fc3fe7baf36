"""The reports that real runs left in docs/results, and the tables that they have.

Each file is what `fope-lab report --json` printed, with the command and the commit that made it
(docs/collect_results.py writes them). No number stands in a page of docs/pages.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from docs.generate.markdown import plain
from docs.generate.shipped import ROOT, load_shipped, reads_own_text
from fope_lab.stages.labels import label, split_label
from fope_lab.stages.metric import LENGTH, Metric
from fope_lab.store.state import Status
from fope_lab.sweep.report_section import Sentence

FOLDER = ROOT / "docs" / "results"
UNIT, LOSS = "perplexity", "validation_loss"
"""The unit that is shown beside accuracies, and the metric of a sweep that only trains."""
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
        """The tables of the report, in its order; curves over positions are left out.

        They are those of evaluations; of a sweep that only trains, those of the validation loss.
        """
        stages = load_shipped(ROOT / self.sweep).stages
        metrics = {(s.section, m.name): m for s in stages for m in s.spec.metrics()}
        trained = {s["stage"]: s["train_length"] for s in self.report["stages"]}
        found: dict[tuple[str, str], list[Cell]] = {}
        for cell in self.report["cells"]:
            found.setdefault((cell["stage"], cell["metric"]), []).append(cell)
        shown = {key: metrics[key] for key in found if key in metrics}
        own = [(name, _says_no_more(stage, name)) for stage, name in found]
        groups = [
            Group(
                stage,
                metric,
                rows_of(found[stage, name]),
                trained.get(stage) if metric.axis == LENGTH else None,
                own_name=_says_no_more(stage, name) and own.count((name, True)) == 1,
            )
            for (stage, name), metric in shown.items()
            if metric.shown_as is None and (metric.axis is None or metric.axis.name != "position")
        ]
        evaluated = [g for g in groups if g.metric.mastery is not None or g.metric.unit == UNIT]
        return evaluated or [group for group in groups if group.metric.name == LOSS]

    @functools.cached_property
    def other_stages(self) -> tuple[int, int]:
        """How many stages of the result the sweep has no more, and how many of it are missing.

        Where the user provides the text, the keys are those of another text, and say nothing.
        """
        sweep = load_shipped(ROOT / self.sweep)
        if reads_own_text(sweep):
            return 0, 0
        now = {stage.key for stage in sweep.stages}
        then = {stage["key"] for stage in self.report["stages"]}
        unneeded = self.report["counts"].get(Status.NOT_NEEDED, 0)  # by the rule for the seeds
        return len(then - now), len(now - then) - unneeded

    @property
    def words_of_numbers(self) -> Mapping[str, Mapping[str, str]]:
        """The words for the numbers of each analysis, by its section and by their names."""
        words: dict[str, dict[str, str]] = {}
        for stage in load_shipped(ROOT / self.sweep).stages:
            if analysis := getattr(stage.spec, "analysis", None):
                words.setdefault(stage.section, {}).update(analysis.number_words)
        return words

    @property
    def bases(self) -> Mapping[str, Sentence | None]:
        """What each claim stands for, by its text."""
        return {one.text: one.basis for one in load_shipped(ROOT / self.sweep).report.stated}

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
