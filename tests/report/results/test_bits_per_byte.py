"""Bits per byte: where a report shows them beside the perplexity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_samples import report_of

BPE = {"train": "bpe", "vocabulary": 300, "corpus": "python-docs"}
ALIKE: dict[str, Any] = {"grid": {"pretrain.embedding": ["rope", "fope"]}}
DIFFERENT: dict[str, Any] = {"grid": {**ALIKE["grid"], "pretrain.tokenizer": ["byte", BPE]}}


def shown(folder: Path, changes: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The metrics of the tables and of the figures."""
    report = report_of(folder, changes=changes)
    tables, figures = report.table_groups, report.figure_groups
    return [g.metric.short_name for g in tables], [g.metric.short_name for g in figures]


@pytest.mark.parametrize(
    ("changes", "tables", "figures"),
    [
        (ALIKE, ["perplexity", "passkey", "loss"], None),
        (DIFFERENT, ["bits_per_byte", "perplexity", "passkey", "loss"], None),
        (
            {**ALIKE, "report": {"tables": ["bits_per_byte"]}},
            ["bits_per_byte"],
            ["bits_per_byte", "perplexity", "passkey", "loss"],
        ),
        (
            {**DIFFERENT, "report": {"figures": ["passkey"]}},
            ["bits_per_byte", "perplexity", "passkey", "loss"],
            ["passkey"],
        ),
    ],
)
def test_they_are_shown_on_request_and_where_tokenizers_differ(
    tmp_path: Path, changes: dict[str, Any], tables: list[str], figures: list[str] | None
) -> None:
    assert shown(tmp_path, changes) == (tables, tables if figures is None else figures)
