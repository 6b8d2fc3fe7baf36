"""The published numbers: the files that hold them, and the comparison with ours."""

from __future__ import annotations

import dataclasses
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from report_samples import BASE, make_report, report_of, write_plan
from scipy import stats
from shipped import sweep_of

from fope_lab.config.shipped import paper_names
from fope_lab.report import Report
from fope_lab.report.compare.paper_comparison import (
    PaperComparison,
    compare_with_paper,
    label_matches,
)
from fope_lab.report.compare.published import PublishedTable, load_published, read_published
from fope_lab.report.render.json import report_json
from fope_lab.report.render.tables import compared_texts
from fope_lab.report.results.cells import Cell, MissingSeed, StageResult, group_seeds
from fope_lab.stages.labels import label
from fope_lab.stages.metric import ResultRecord
from fope_lab.statistics.intervals import MeanEstimate
from fope_lab.store.root import Store
from fope_lab.store.state import NOT_STARTED
from fope_lab.sweep import SweepError
from fope_lab.sweep.graph import Stage
from fope_lab.tracking.stage_run import metric_path

ROOT = Path(__file__).parents[3]
OF_NUMBERS = ("in the released logs", "setting for a CPU", "setting for a GPU")
"""The ends of the places of numbers that are not in a table of a paper."""


@pytest.mark.parametrize("name", paper_names())
def test_each_table_and_figure_is_named_after_its_place(name: str) -> None:
    published = load_published(name)
    place = name.partition("/")[2]
    if published.arxiv:
        assert published.place.lower().replace(" ", "").startswith(place)
    of_numbers = place.startswith("table") or published.place.endswith(OF_NUMBERS)
    assert bool(published.rows) is of_numbers
    for row in published.rows:
        for column in published.columns:
            value = published.value(row, column)
            assert value is not None
            assert math.isfinite(value)
            if "accuracy" in column.metric:
                assert 0 <= value <= 1


def test_a_folder_is_one_paper() -> None:
    papers = {(name.partition("/")[0], load_published(name).address) for name in paper_names()}
    folders, numbers = zip(*papers, strict=True)
    assert len(set(folders)) == len(set(numbers)) == len(papers)
    assert papers >= {
        ("fope", "https://arxiv.org/abs/2412.17739"),
        ("resonance", "https://arxiv.org/abs/2403.00071"),
        ("p_rope", "https://arxiv.org/abs/2410.06205"),
        ("nanogpt", "https://github.com/karpathy/nanoGPT"),
    }


@pytest.mark.parametrize("name", ["fope/table4", "fope/table5", "fope/table6", "resonance/table2"])
def test_printed_averages_are_those_of_the_rows(name: str) -> None:
    published = load_published(name)
    assert published.average is not None
    over = published.average.divided_by or len(published.columns)
    decimals = 4 if name == "fope/table5" else 2
    for row in published.rows:
        values = [value for value in row.values if value is not None]
        assert row.average is not None
        # RoPE's in Table 6 is a hundredth off, which the file says
        slack = 2 if (name, row.label) == ("fope/table6", "RoPE") else 1
        assert abs(sum(values) / over - row.average) < slack * 10**-decimals


def test_table4_averages_are_sums_over_ten_for_nine_columns() -> None:
    published = load_published("fope/table4")
    assert published.average is not None
    assert (published.average.divided_by, len(published.columns)) == (10, 9)
    assert any("divided by ten" in note for note in published.notes)
    fope = next(row for row in published.rows if row.label == "FoPE")
    value = published.value(fope, published.all_columns[-1])
    assert value == pytest.approx(0.48183, abs=1e-5)


def test_posgen_is_in_our_unit_with_what_the_paper_calls_a_variance() -> None:
    published = load_published("resonance/table1")
    assert published.spread is not None
    assert "variance" in published.spread
    rows = {row.label: row for row in published.rows}
    numbers = {
        name: [round(published.value(row, c) or 0, 6) for c in published.columns]
        for name, row in rows.items()
    }
    assert numbers == {
        "RoPE": [0.6529, 0.6956, 0.1796],
        "Resonance RoPE": [0.6264, 0.7525, 0.2978],
        "YaRN": [0.9593, 0.9871, 0.3370],
        "Resonance YaRN": [0.9830, 0.9958, 0.4846],
    }
    assert rows["RoPE"].spreads == (0.43, 0.33, 0.03)


@pytest.mark.parametrize("place", [3, 4, 5])
def test_the_scores_of_gemma_are_within_their_bounds(place: int) -> None:
    """As Cauchy–Schwarz has it for a token's score with itself: a wrong digit would likely break
    it. The three tables have 69 numbers."""
    published = load_published(f"p_rope/table{place}")
    [row] = published.rows
    by_metric: dict[str, list[float]] = {}
    for column in published.columns:
        by_metric.setdefault(column.metric, []).append(published.value(row, column) or math.nan)
    bounds, own, previous = by_metric.values()
    assert (len(bounds), len(own), len(previous)) == (8, 8, 7)
    assert all(abs(score) < bound for score, bound in zip(own, bounds, strict=True))
    diagonal = sum(own[1:]) > sum(previous)
    assert diagonal == (place != 5)


GOOD: dict[str, Any] = {
    "paper": "Someone",
    "arxiv": "2401.00001",
    "place": "Table 1",
    "title": "Something",
    "says": ["It is so."],
    "columns": [{"label": "64", "metric": "perplexity_by_length", "x": 64}],
    "rows": [{"label": "RoPE", "where": {"embedding": "rope"}, "values": [7.5]}],
}


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"tilte": "x"}, "tilte", "did you mean 'title'?"),
        ({"arxiv": "someone"}, "arxiv", "someone"),
        ({"arxiv": None}, "arxiv", "found neither"),
        ({"repository": "someone/code"}, "arxiv", "found both"),
        ({"arxiv": None, "repository": "code"}, "repository", "an owner and a name"),
        ({"says": []}, "says", "at least one entry"),
        ({"rows": []}, "columns", "need each other"),
        ({"rows": [{**GOOD["rows"][0], "values": [1, 2]}]}, "rows[0].values", "2 numbers for 1"),
        ({"rows": [{**GOOD["rows"][0], "spreads": [1]}]}, "rows[0].spreads", "in neither"),
        ({"rows": [{**GOOD["rows"][0], "average": 1}]}, "rows[0].average", "in neither"),
        ({"rows": GOOD["rows"] * 2}, "rows[1].label", "'RoPE' twice"),
        ({"rows": [{**GOOD["rows"][0], "values": ["7.5"]}]}, "rows[0].values", "needs a number"),
        ({"columns": [{"label": "a", "metric": 7}]}, "columns[0].metric", "needs text"),
        ({"factor": 0}, "factor", "more than 0"),
    ],
)
def test_a_wrong_file_says_where_and_what(
    tmp_path: Path, change: dict[str, Any], field: str, words: str
) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(yaml.safe_dump(GOOD, sort_keys=False))
    read_published(path)
    path.write_text(yaml.safe_dump({**GOOD, **change}, sort_keys=False))
    with pytest.raises(SweepError) as caught:
        read_published(path)
    [problem] = [one for one in caught.value.problems if words in one.message]
    assert problem.line is not None
    assert problem.field.startswith(field)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fope/tabel2", "unknown published table 'fope/tabel2'; did you mean 'fope/table2'?"),
        ("../papers/fope/table2", "allowed"),
        (7, "found 7, needs text"),
    ],
)
def test_an_unknown_paper_stops_a_sweep(tmp_path: Path, name: object, words: str) -> None:
    with pytest.raises(SweepError) as caught:
        write_plan(tmp_path, {"paper": name})
    [problem] = caught.value.problems
    assert (problem.field, words in problem.message) == ("paper", True)
    line = problem.file.read_text().splitlines()[(problem.line or 0) - 1]
    assert line.startswith("paper:")


OPTIONS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3) | st.sampled_from([0.5, 4.0]))


@given(st.sampled_from(["rope", "p-rope"]), OPTIONS, OPTIONS)
def test_a_label_fits_what_has_its_options_and_others(
    name: str, wanted: dict[str, Any], more: dict[str, Any]
) -> None:
    found = label({"type": name, **more, **wanted})
    assert label_matches(label({"type": name, **wanted}), found)
    assert not label_matches(label({"type": f"{name}x", **wanted}), found)
    assert not label_matches(label({"type": name, **wanted, "d": 1}), found)


@pytest.mark.parametrize(
    ("wanted", "found", "fits"),
    [
        ("yarn(factor=4)", "yarn(base=330,factor=4.0)", True),
        ("yarn(factor=4)", "yarn(factor=8)", False),
        ("yarn", "resonance-yarn", False),
        ("512", "512", True),
        ("512", "1024", False),
    ],
)
def test_numbers_are_numbers(wanted: str, found: str, fits: bool) -> None:
    assert label_matches(wanted, found) is fits


# The comparison with the paper


def published_of(folder: Path, changes: dict[str, Any]) -> PublishedTable:
    path = folder / "table.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **changes}, sort_keys=False))
    return read_published(path)


def paper_of(
    folder: Path, published: PublishedTable, sweep: dict[str, Any] | None = None, **options: Any
) -> PaperComparison:
    return compared(report_of(folder, changes=sweep, **options), published)


def compared(report: Report, published: PublishedTable) -> PaperComparison:
    return compare_with_paper(published, report.cells, report.stages)


def numbers(stage: Stage, length: int | None) -> float:
    return {0: 7.0, 1: 8.0, 2: 9.0}[stage.seed or 0] if length else 1.0


def test_the_difference_and_its_interval_are_students(tmp_path: Path) -> None:
    rows = [
        {"label": "RoPE", "where": {"embedding": "rope"}, "values": [10.0]},
        {"label": "FoPE", "where": {"embedding": "fope"}, "values": [20.0]},
    ]
    paper = paper_of(tmp_path, published_of(tmp_path, {"rows": rows}), numbers=numbers)
    half = stats.t.ppf(0.975, 2) * statistics.stdev([7, 8, 9]) / math.sqrt(3)
    near, far = paper.numbers
    assert (near.row, near.column, near.published, near.difference) == ("RoPE", "64", 10.0, -2.0)
    assert near.cell.embedding == "rope"
    assert compared_texts(near) == ("10.00", f"8.00 ± {half:.2f}", f"−2.00 ± {half:.2f}", "yes")
    assert (far.difference, compared_texts(far)[3]) == (-12.0, "no")
    assert "our intervals contain 1 of 2" in paper.summary
    weights = 2 * (16 * 32**2 + 2 * 32) + 32 + 2 * 272 * 32  # as in test_comparable.py
    assert (
        paper.notes[0] == f"Our models have {weights:,} parameters and were trained at 64 tokens."
    )
    assert paper.absent == ()


def test_one_seed_has_a_difference_and_no_interval(tmp_path: Path) -> None:
    paper = paper_of(tmp_path, published_of(tmp_path, {}), {"seeds": [0]}, numbers=numbers)
    [one] = paper.numbers
    assert compared_texts(one) == ("7.50", "7.00", "−0.50", "–")
    assert one.inside is None


def test_the_factor_makes_percent_fractions(tmp_path: Path) -> None:
    changes = {
        "factor": 0.01,
        "spread": "variance",
        "columns": [{"label": "64", "metric": "passkey_accuracy_by_length", "x": 64}],
        "rows": [{**GOOD["rows"][0], "values": [65.29], "spreads": [0.43]}],
    }
    paper = paper_of(tmp_path, published_of(tmp_path, changes), numbers=lambda s, x: 0.5)
    [one] = paper.numbers
    assert compared_texts(one)[:3] == ("0.653 [0.43]", "0.500 ± 0.000", "−0.153 ± 0.000")
    assert any("variance" in note for note in paper.notes)


def test_every_number_without_a_cell_is_listed(tmp_path: Path) -> None:
    metric = {"metric": "perplexity_by_length"}
    changes = {
        "columns": [
            {"label": "64", "x": 64, **metric},
            {"label": "4096", "x": 4096, **metric},
            {"label": "needle", "metric": "needle_accuracy_by_length", "x": 64},
        ],
        "rows": [
            {"label": "RoPE", "where": {"embedding": "rope"}, "values": [1.0, 2.0, 3.0]},
            {"label": "FoPE", "where": {"embedding": "fope"}, "values": [1.0, 2.0, None]},
            {"label": "FIRE", "where": {"embedding": "fire"}, "values": [1.0, 2.0, 3.0]},
        ],
    }
    paper = paper_of(tmp_path, published_of(tmp_path, changes))
    assert [(one.row, one.column) for one in paper.numbers] == [("RoPE", "64"), ("FoPE", "64")]
    assert paper.absent == (
        "RoPE, 4096, needle: not part of this sweep",
        "FoPE, 4096: not part of this sweep",
        "FIRE: not part of this sweep",
    )
    assert "2 of 8 published numbers" in paper.summary


def test_what_may_still_come_is_told_from_what_will_not(tmp_path: Path) -> None:
    rows = [*GOOD["rows"], {"label": "FIRE", "where": {"embedding": "fire"}, "values": [1.0]}]
    plan = write_plan(tmp_path)
    report = make_report(plan, Store(tmp_path / "store"))
    paper = compared(report, published_of(tmp_path, {"rows": rows}))
    assert paper.absent == ("RoPE: no result yet", "FIRE: not part of this sweep")


def test_unfinished_cells_stand_with_their_state(tmp_path: Path) -> None:
    skip = [f"perplexity[embedding=rope,seed={seed}]" for seed in range(3)]
    paper = paper_of(tmp_path, published_of(tmp_path, {}), skip=skip)
    [one] = paper.numbers
    assert compared_texts(one) == ("7.50", "not started", "–", "–")
    assert one.difference is None


def test_options_are_told_apart_and_the_letter_goes_first(tmp_path: Path) -> None:
    half, most = {"type": "p-rope", "p": 0.5}, {"type": "p-rope", "p": 0.75}
    grid = {"pretrain.embedding": ["rope", {"type": "rope", "base": 500}, half, most]}
    rows = [
        {"label": "RoPE", "where": {"embedding": "rope"}, "values": [1.0]},
        {"label": "0.75-RoPE", "where": {"embedding": "p-rope(p=0.75)"}, "values": [2.0]},
        {"label": "p-RoPE", "where": {"embedding": "p-rope"}, "values": [3.0]},
    ]
    paper = paper_of(tmp_path, published_of(tmp_path, {"rows": rows}), {"grid": grid})
    assert [one.cell.embedding for one in paper.numbers] == ["rope", "p-rope(p=0.75)"]
    [reason] = paper.absent
    assert reason.startswith("p-RoPE: several rows of this sweep match: ")
    assert "p=0.5" in reason


def test_the_fewest_other_options_win_where_no_label_is_the_same(tmp_path: Path) -> None:
    plain = {"type": "yarn", "base": 500, "factor": 4}
    grid = {"pretrain.embedding": [plain | {"ramp": "cycles"}, plain, plain | {"alpha": 2}]}
    rows = [
        {"label": "YaRN", "where": {"embedding": "yarn(factor=4)"}, "values": [1.0]},
        {"label": "printed", "where": {"embedding": "yarn(ramp=cycles)"}, "values": [2.0]},
    ]
    paper = paper_of(tmp_path, published_of(tmp_path, {"rows": rows}), {"grid": grid})
    assert [one.cell.embedding for one in paper.numbers] == [
        "yarn(base=500,factor=4)",
        "yarn(base=500,factor=4,ramp=cycles)",
    ]
    assert not paper.absent


def test_a_length_counts_as_a_multiple_of_the_trained_length(tmp_path: Path) -> None:
    metric = {"metric": "perplexity_by_length"}
    changes = {
        "trained_length": 512,
        "columns": [{"label": str(x), "x": x, **metric} for x in (64, 256, 512, 1024)],
        "rows": [{**GOOD["rows"][0], "values": [1.0, 2.0, 3.0, 4.0]}],
    }
    lengths = {"perplexity.lengths": [[32, 64, 96]]}
    grid = {"pretrain.embedding": ["rope"], **lengths}
    paper = paper_of(tmp_path, published_of(tmp_path, changes), {"grid": grid})
    pairs = [(one.column, one.cell.x) for one in paper.numbers]
    assert pairs == [("256", 32), ("512", 64)]
    assert paper.absent == ("RoPE, 64, 1024: not part of this sweep",)
    assert any("at 512 tokens" in note for note in paper.notes)


def test_the_same_trained_length_needs_no_note(tmp_path: Path) -> None:
    paper = paper_of(tmp_path, published_of(tmp_path, {"trained_length": 64}))
    assert [one.cell.x for one in paper.numbers] == [64]
    assert not any("multiple" in note for note in paper.notes)


def test_several_of_our_rows_belong_to_one_published_row(tmp_path: Path) -> None:
    grid = {"pretrain.embedding": [{"type": "fope", "base": 129}, "fope-official"]}
    rows = [{"label": "F", "where": {"embedding": ["fope", "fope-official"]}, "values": [1.0]}]
    paper = paper_of(tmp_path, published_of(tmp_path, {"rows": rows}), {"grid": grid})
    assert list(paper.rows) == ["F (fope)", "F (fope-official)"]
    assert paper.absent == ()


def test_a_cell_has_one_published_number(tmp_path: Path) -> None:
    again = {"label": "again", "where": {"embedding": "rope"}, "values": [1.0]}
    paper = paper_of(tmp_path, published_of(tmp_path, {"rows": [*GOOD["rows"], again]}))
    assert [one.row for one in paper.numbers] == ["RoPE"]
    assert paper.absent == ("again: its cell is already compared with RoPE, 64",)


def test_settings_that_are_no_axes_count_too(tmp_path: Path) -> None:
    """Without an axis of QK-norm, the sweep's one setting of it is what a row must have."""
    rows = [
        {"label": norm, "where": {"embedding": "rope", "qk_norm": norm}, "values": [1.0]}
        for norm in ("none", "layer")
    ]
    paper = paper_of(tmp_path, published_of(tmp_path, {"rows": rows}))
    assert [one.row for one in paper.numbers] == ["none"]
    assert paper.absent == ("layer: not part of this sweep",)


def test_a_tables_setting_counts_where_it_is_an_axis(tmp_path: Path) -> None:
    published = published_of(tmp_path, {"setting": {"scale": "tiny"}})
    assert len(paper_of(tmp_path, published).numbers) == 1
    stages = {**BASE["stages"], "pretrain": {**BASE["stages"]["pretrain"], "model": "tiny"}}
    grid = {"pretrain.embedding": ["rope"], "pretrain.model.scale": ["mini", "tiny"]}
    sweep = {"grid": grid, "seeds": [0], "stages": stages}
    stages["pretrain"] = {**stages["pretrain"], "model": {"scale": "tiny"}}
    [one] = paper_of(tmp_path / "axis", published, sweep).numbers
    assert one.cell.axes["pretrain.model.scale"] == "tiny"


def test_two_stages_with_one_metric_are_told_apart_by_their_corpus(tmp_path: Path) -> None:
    stages = {
        **BASE["stages"],
        "other": {**BASE["stages"]["perplexity"], "corpus": {"files": ["text.txt"]}},
    }
    (tmp_path / "text.txt").write_text("some words " * 20_000)
    column = {"label": "64", "metric": "perplexity_by_length", "x": 64}
    both = published_of(tmp_path, {"columns": [column]})
    sweep = {"stages": stages, "seeds": [0]}
    paper = paper_of(tmp_path, both, sweep)
    assert not paper.numbers
    assert "several rows of this sweep match" in paper.absent[0]
    one = published_of(tmp_path, {"columns": [{**column, "corpus": "files(1)"}]})
    report = make_report(write_plan(tmp_path, sweep), Store(tmp_path / "store"))
    [found] = compared(report, one).numbers
    assert found.cell.section == "other"


def test_json_has_the_published_number_of_each_cell(tmp_path: Path, store: Store) -> None:
    report = report_of(tmp_path, store, {"paper": "fope/figure1"})
    assert {cell["paper"] for cell in report_json(report)["cells"]} == {None}
    assert report_json(report)["beside"]["says"]
    report = dataclasses.replace(report, paper=compared(report, published_of(tmp_path, {})))
    cells = [c for c in report_json(report)["cells"] if c["paper"] is not None]
    assert [(c["stage"], c["metric"], c["x"], c["paper"]) for c in cells] == [
        ("perplexity", "perplexity_by_length", 64, 7.5)
    ]
    assert cells[0]["axes"] == {"pretrain.embedding": "rope"}
    [one] = report_json(report)["beside"]["comparisons"]
    assert one["difference"] == pytest.approx(cells[0]["mean"] - 7.5)


# The sweeps that ship


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(ROOT.glob("sweeps/*/*.yaml")) if "\npaper: " in path.read_text()],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_each_printed_number_has_a_cell_in_the_papers_sweep(path: Path) -> None:
    sweep = sweep_of(path)
    assert sweep.paper is not None
    published = load_published(sweep.paper)
    results = [_waiting(stage) for stage in sweep.stages]
    paper = compare_with_paper(published, _cells(results), results)
    found = {(one.row, one.column) for one in paper.numbers}
    if path.parent.name != "mini":
        assert paper.absent == ()
        assert len(found) == len(published.rows) * len(published.all_columns)
    curves = {
        one.name: one.axis is not None for stage in sweep.stages for one in stage.spec.metrics()
    }
    for column in published.all_columns:
        assert (column.x is not None) == curves.get(column.metric, column.x is not None)
    names = [metric_path((one.label, one.column)) for one in paper.numbers]
    assert len(set(names)) == len(names)


def _waiting(stage: Stage) -> StageResult:
    return StageResult(stage, Path(), NOT_STARTED, (), ResultRecord(), None, None, None, None)


def _cells(results: list[StageResult]) -> list[Cell]:
    """All cells of the metrics that the stages declare."""
    cells = []
    for group in group_seeds(results):
        stage = group[0].stage
        gaps = tuple(MissingSeed(r.stage.seed, r.stage.key, r.state.status, "") for r in group)
        cells += [
            Cell(
                section=stage.section,
                metric=metric,
                x=x,
                axes=stage.axes,
                estimate=MeanEstimate(0, None, None),
                values=(),
                missing=gaps,
                trained_length=None,
                embedding=stage.embedding,
            )
            for metric in stage.spec.metrics()
            for x in metric.xs or (None,)
        ]
    return cells
