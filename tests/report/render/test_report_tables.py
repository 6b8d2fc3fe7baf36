"""Tables: what stands where, what is marked, and how terminals show them."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from report_samples import report_of, typical_numbers
from rich.console import Console

from fope_lab.report.render.tables import Table, build_tables
from fope_lab.report.render.terminal import table_text
from fope_lab.store.root import Store
from fope_lab.sweep.graph import Stage


def tables_of(
    folder: Path, store: Store, changes: dict[str, object] | None = None, **arguments: object
) -> dict[str, Table]:
    return {t.title: t for t in build_tables(report_of(folder, store, changes, **arguments))}


def row_of(table: Table, label: str) -> tuple[str, ...]:
    return next(
        tuple(entry.text for entry in row.entries) for row in table.rows if row.labels[0] == label
    )


def best_in(table: Table, column: str) -> set[str]:
    index = [c.label for c in table.columns].index(column)
    return {row.labels[0] for row in table.rows if row.entries[index].best}


def test_rows_are_embeddings_and_columns_lengths(tmp_path: Path, store: Store) -> None:
    tables = tables_of(tmp_path, store)
    assert list(tables) == ["Perplexity", "Passkey accuracy", "Loss (pretrain)"]
    table = tables["Perplexity"]
    assert [row.labels for row in table.rows] == [("nope",), ("alibi",), ("rope",), ("fope",)]
    assert [column.label for column in table.columns] == ["32", "64", "128", "256"]
    assert [column.trained for column in table.columns] == [False, True, False, False]
    assert {row.seeds for row in table.rows} == {"3"}


def test_the_best_of_each_column_is_marked(tmp_path: Path, store: Store) -> None:
    tables = tables_of(tmp_path, store)
    assert best_in(tables["Perplexity"], "64") == {"rope"}  # lower is better
    assert best_in(tables["Perplexity"], "256") == {"alibi"}
    assert best_in(tables["Passkey accuracy"], "128") == {"fope"}  # higher is better
    assert best_in(tables["Loss (pretrain)"], "value") == {"rope"}


def test_only_rows_of_one_panel_compete(tmp_path: Path, store: Store) -> None:
    grid = {"pretrain.embedding": ["rope", "fope"], "pretrain.data.length": [32, 64]}

    def numbers(stage: Stage, length: int | None) -> float:
        mean = 10.0 + (stage.embedding == "fope") - 5 * (stage.axes["pretrain.data.length"] == 64)
        return mean * (1 + 0.01 * (stage.seed or 0))

    table = tables_of(tmp_path, store, {"grid": grid}, numbers=numbers)["Perplexity"]
    assert table.labels == ("embedding", "length", "trained at")
    best = [(row.labels, row.starts_panel) for row in table.rows if row.entries[0].best]
    assert best == [(("rope", "32", "32"), False), (("rope", "64", "64"), True)]
    assert [c.label for c in table.columns if c.trained] == ["32", "64"]
    assert "Compared are the rows with the same length." in table.notes


def test_gaps_and_odd_values_are_spelt_out(tmp_path: Path, store: Store) -> None:
    def numbers(stage: Stage, length: int | None) -> float:
        if stage.kind == "perplexity" and length == 256:
            if stage.embedding == "rope":
                return math.inf
            if stage.embedding == "fope" and stage.seed == 2:
                return math.nan
        return typical_numbers(stage, length)

    failed = {f"perplexity[embedding=nope,seed={seed}]": "broken" for seed in range(3)}
    one = {"perplexity[embedding=alibi,seed=1]": "broken too"}
    table = tables_of(tmp_path, store, numbers=numbers, fail=failed | one)["Perplexity"]
    assert row_of(table, "nope") == ("failed",) * 4
    assert row_of(table, "rope")[3] == "∞ in 3 of 3"
    assert row_of(table, "fope")[3] == "NaN in 1 of 3"
    assert [row.seeds for row in table.rows] == ["0 of 3", "2 of 3", "3", "3"]
    alibi = table.rows[1].entries[0]
    assert "seed 1: failed: broken too" in alibi.title
    assert "no mean" in " ".join(table.notes)


def test_one_seed_has_no_interval_and_the_table_says_so(tmp_path: Path, store: Store) -> None:
    table = tables_of(tmp_path, store, {"seeds": [3]})["Perplexity"]
    assert all("±" not in entry.text for row in table.rows for entry in row.entries)
    assert "One seed: no interval" in " ".join(table.notes)


def test_mean_and_half_width_are_those_of_the_cell(tmp_path: Path, store: Store) -> None:
    table = tables_of(tmp_path, store)["Passkey accuracy"]
    for row in table.rows:
        for entry in row.entries:
            assert entry.cell is not None
            estimate = entry.cell.estimate
            assert estimate.half_width is not None
            assert entry.text == f"{estimate.mean:.3f} ± {estimate.half_width:.3f}"
            for value in entry.cell.values:
                assert f"seed {value.seed}: {value.value!r} ({value.key})" in entry.title


def test_plain_text_holds_every_entry_in_aligned_columns(tmp_path: Path, store: Store) -> None:
    table = tables_of(tmp_path, store, fail={"perplexity[embedding=alibi,seed=1]": "x"})[
        "Perplexity"
    ]
    lines = table_text(table).plain.splitlines()
    assert lines[0] == "Perplexity"
    assert lines[2].split() == ["embedding", "seeds", "32", "64†", "128", "256"]
    body = lines[4:8]
    for row, line in zip(table.rows, body, strict=True):
        assert line.startswith(row.labels[0])
        for entry in row.entries:
            assert (entry.text + " *" if entry.best else entry.text) in line
    assert len({line.index("±") for line in body}) == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_printing_treats_names_as_text(tmp_path: Path, store: Store, terminal: bool) -> None:
    grid = {"pretrain.embedding": ["rope", "fope"]}
    [table, *_] = tables_of(tmp_path, store, {"grid": grid}).values()
    hostile = Table("[bold]x[/bold]", table.labels, table.columns, table.rows, table.notes)
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, color_system=None, width=120)
    console.print(table_text(hostile), soft_wrap=True)
    text = out.getvalue()
    assert "[bold]x[/bold]" in text
    for row in table.rows:
        assert all(entry.text in text for entry in row.entries)
