"""Verdicts where people and programs read them, and the tables and figures that a file asks for."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_samples import BASE, printed, report_of

from fope_lab.report import Report
from fope_lab.report.claims.judge import VERDICTS, Verdict, WouldDecide
from fope_lab.report.render.claims_view import (
    MARKS,
    count_words,
    describe_chance,
    describe_tests,
    group_by_basis,
)
from fope_lab.report.render.documents import render_html, render_markdown
from fope_lab.report.render.figures import draw_figures
from fope_lab.report.render.json import report_json
from fope_lab.report.render.tables import build_tables
from fope_lab.report.render.terminal import MOST_VERDICTS, claim_lines

FIELDS = {
    *("text", "axes", "verdict", "p", "n", "test", "reason", "unequal", "adjusted_p", "looks"),
    *("would_decide", "by_chance", "added", "basis"),
}
LEARNING_RATE = "pretrain.train.learning_rate"
CLAIMS = [
    "perplexity@256: fope < rope",
    "passkey@128: fope > nope",
    "passkey@128 where learning_rate=1e-3: fope < rope",
    "perplexity@256 where learning_rate=1e-3: fope <= rope * 1.01",
    "perplexity@64 where learning_rate=1e-3: fope ~ rope within 10%",
    "passkey@128 where learning_rate=1e-3: fope > 0.5",
    "perplexity@64..256 where learning_rate=1e-3: alibi grows at most 5%",
    "perplexity@64..256 where learning_rate=1e-3: rope grows",
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return made(tmp_path_factory.mktemp("shown"), {"claims": CLAIMS})


def made(folder: Path, section: dict[str, Any]) -> Report:
    grid = {**BASE["grid"], LEARNING_RATE: [1e-3, 2e-3]}
    return report_of(folder, changes={"report": section, "grid": grid, "seeds": [0, 1]})


def verdict(text: str = "a: b > c", word: str = "holds", **fields: Any) -> Verdict:
    usual = {"axes": {}, "p": 0.01, "n": 3, "test": "paired t over 3 seeds", "reason": "means"}
    return Verdict(**{"text": text, "verdict": word, **usual, **fields})


def markdown(report: Report, verdicts: Sequence[Verdict]) -> str:
    return render_markdown(dataclasses.replace(report, verdicts=tuple(verdicts)))


class Section(HTMLParser):
    """The claims of a page: the text of each verdict's word, its classes, and what is folded."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.classes: list[str] = []
        self.open: list[bool] = []
        self.text = ""
        self._inside = 0
        start = page.index('<section id="claims">')
        self.feed(page[start : page.index("</section>", start)])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        classes = (given.get("class") or "").split()
        if tag == "details":
            self.open.append("open" in given)
        if self._inside or classes[:1] == ["verdict"]:
            self._inside += 1
        if classes[:1] == ["verdict"]:
            self.words.append("")
            self.classes.append(classes[1])

    def handle_endtag(self, tag: str) -> None:
        self._inside = max(0, self._inside - 1)

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._inside:
            self.words[-1] += data


def test_json_has_one_entry_for_each_verdict(report: Report) -> None:
    entries = report_json(report)["claims"]
    for entry in entries:
        assert entry.keys() == FIELDS
        assert entry["verdict"] in VERDICTS
        assert entry["p"] is None or 0 <= entry["p"] <= 1
        assert re.match(r"(paired )?t over ", entry["test"])
    assert [(entry["text"], entry["axes"]) for entry in entries] == [
        (CLAIMS[0], {LEARNING_RATE: 1e-3}),
        (CLAIMS[0], {LEARNING_RATE: 2e-3}),
        (CLAIMS[1], {LEARNING_RATE: 1e-3}),
        (CLAIMS[1], {LEARNING_RATE: 2e-3}),
        *((claim, {}) for claim in CLAIMS[2:]),
    ]


def test_one_verdict_stands_in_the_common_table_with_its_combination(tmp_path: Path) -> None:
    pairs = {"pretrain.embedding": ["rope", "fope", "fope"], "pretrain.model.num_layers": [1, 1, 2]}
    changes = {"report": {"claims": CLAIMS[:1]}, "grid": {}, "zip": pairs}
    section = Section(render_html(report_of(tmp_path, changes=changes)))
    assert section.open == []
    assert len(section.words) == 1
    assert f"{CLAIMS[0]} num layers 1" in " ".join(section.text.split())


def test_every_output_shows_what_claims_stand_for_once_and_above_them(tmp_path: Path) -> None:
    said = {"quote": "A <b>beats</b> B & C.", "place": "§5.2", "claims": CLAIMS[2:4]}
    ours = {"note": "Our own reading.", "claims": [CLAIMS[5]]}
    report = made(tmp_path, {"claims": [CLAIMS[0], said, ours]})
    entries = report_json(report)["claims"]
    found = [
        entry["basis"] and (entry["basis"]["quote"], entry["basis"]["note"]) for entry in entries
    ]
    sentence = "“A <b>beats</b> B & C.” (§5.2)"
    assert found == [None, None, *[(said["quote"], "")] * 2, ("", ours["note"])]
    text = render_markdown(report).replace("&lt;", "<").replace("&amp;", "&").replace("\\", "")
    outputs = {"page": Section(render_html(report)).text, "terminal": printed(report), "md": text}
    for name, output in outputs.items():
        joined = " ".join(output.split())
        order = [CLAIMS[0], sentence, *CLAIMS[2:4], ours["note"], CLAIMS[5]]
        places = [joined.index(text) for text in order]
        assert places == sorted(places), name
        assert joined.count(sentence) == joined.count(ours["note"]) == 1


def test_a_sweep_without_claims_has_none(tmp_path: Path) -> None:
    report = made(tmp_path, {"figures": []})
    assert report_json(report)["claims"] == []
    assert "Claims" not in printed(report)
    assert 'id="claims"' not in render_html(report)
    assert "## Claims" not in render_markdown(report)


def test_every_output_says_every_verdict(report: Report) -> None:
    words = [one.verdict for one in report.verdicts]
    section = Section(render_html(report))
    assert section.classes == [word.replace(" ", "-") for word in words]
    assert [text.strip() for text in section.words] == [f"{MARKS[w]}{w}" for w in words]
    outputs = {"page": section.text, "terminal": printed(report), "md": render_markdown(report)}
    for output in outputs.values():
        for one in report.verdicts:
            assert one.text in output
            assert one.reason in output
        assert count_words(verdict.verdict for verdict in report.verdicts) in output
        assert describe_chance(report.verdicts) in " ".join(output.split())
        assert "learning rate" in output
        assert "0.002" in output


def test_counts_and_marks() -> None:
    assert set(MARKS) == set(VERDICTS)
    assert len(set(MARKS.values())) == len(MARKS)  # no verdict is told by colour alone
    words = ["holds", "holds", "fails", "not trained", "undecided", "undecided"]
    verdicts = [verdict(word=word) for word in words]
    words = [verdict.verdict for verdict in verdicts]
    assert count_words(words) == "2 hold, 1 fails, 2 undecided, 1 not trained"
    assert count_words(words[1:2]) == "1 holds"


def test_many_verdicts_are_folded_and_cut() -> None:
    many = [verdict("many: a > b", axes={"s.width": i}) for i in range(MOST_VERDICTS + 5)]
    few = [verdict("few: a > b", axes={"s.width": i}) for i in range(2)]
    [(_, claims)] = group_by_basis([*many, *few])
    assert [claim.folded for claim in claims] == [True, False]
    lines = list(claim_lines([*few, *many]))
    assert lines[0] == f"Claims: {MOST_VERDICTS + 7} hold."
    assert sum("✓ holds" in line for line in lines) == MOST_VERDICTS
    assert lines[-1] == "  and 7 more; the report lists them all"
    assert "width 1: p = 0.01, n = 3; means" in lines[3]


def test_how_many_come_out_by_chance(report: Report) -> None:
    tested = [verdict(by_chance=0.05) for _ in range(23)]
    chance = "Of the 24 verdicts that were tested, about 1.2 would be decided by chance if no"
    assert describe_chance([*tested, verdict(by_chance=0.026)]).startswith(chance)
    assert describe_chance([verdict(by_chance=0.05)]) == (
        "Of the one verdict that was tested, about 0.05 would be decided by chance if no difference"
        " existed."
    )
    assert describe_chance([verdict(p=None)]) == ""
    assert "about 0.1 would" in describe_tests(tested[:2])
    assert next(claim_lines(tested)) == f"Claims: 23 hold. {describe_chance(tested)}"
    assert describe_chance(tested) in markdown(report, tested)
    adjusted = verdict(adjusted_p=0.046, by_chance=0.05)
    assert "adjusted for all verdicts of the file (Holm)" in describe_chance([adjusted])


DIFFERS = "‡ the models differ in parameters (+3.0 %), tokens (1 and 2)"
WOULD_DECIDE = (
    "means; about 11 seeds would decide it, if the difference is what it seems: 8 more, about"
    " 3 h 12 min of work"
)


@pytest.mark.parametrize(
    ("fields", "line", "row"),
    [
        ({"unequal": ("parameters (+3.0 %)", "tokens (1 and 2)")}, DIFFERS, DIFFERS),
        (
            {"p": 0.02, "adjusted_p": 0.046},
            "p = 0.02, adjusted p = 0.046, n = 3",
            " | 0.02, adjusted 0.046 | 3 | ",
        ),
        (
            {"p": None, "test": "exact: no seeds", "reason": "bound 3.14"},
            "    ✓ holds        exact; bound 3.14",
            " | exact | bound 3.14 |",
        ),
        (
            {"word": "undecided", "would_decide": WouldDecide(11, 8, 11_520.0)},
            WOULD_DECIDE,
            WOULD_DECIDE,
        ),
    ],
)
def test_what_is_said_of_a_verdict(
    report: Report, fields: dict[str, Any], line: str, row: str
) -> None:
    one = verdict(**fields)
    assert line in list(claim_lines([one]))[2]
    assert row in markdown(report, [one])


def test_a_table_of_markdown_survives_any_text(report: Report) -> None:
    text = markdown(report, [verdict("x: a > b", reason="a | *b\nc", p=None), verdict(p=1e-9)])
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == 2
    assert rows[0] == "| `x: a > b` |  | ✓ holds |  | 3 | a \\| \\*b c |"
    assert rows[1].split(" | ")[3] == "\\< 0.0001"


# Which tables and figures there are


def test_tables_and_figures_are_those_asked_for_in_their_order(tmp_path: Path) -> None:
    tables = ["pretrain.loss", "perplexity(python-docs)", "passkey"]
    asked = made(tmp_path, {"tables": tables, "figures": ["passkey", "perplexity"]})
    titles = [table.title for table in build_tables(asked)]
    assert titles == ["Loss (pretrain)", "Perplexity", "Passkey accuracy"]
    drawn = [figure.title.removesuffix(" by context length") for figure in draw_figures(asked)]
    assert drawn[:2] == ["Passkey accuracy", "Perplexity"]
    assert all(title.startswith(("Passkey accuracy at", "Perplexity at")) for title in drawn[2:])
    fewer = made(tmp_path / "fewer", {"tables": ["passkey"], "figures": []})
    assert [table.title for table in build_tables(fewer)] == ["Passkey accuracy"]
    assert draw_figures(fewer) == []
    assert len(fewer.cells) == len(asked.cells)  # the JSON keeps all


def test_without_a_list_all_are_shown(report: Report, tmp_path: Path) -> None:
    titles = {figure.title for figure in draw_figures(report)}
    assert titles == {
        "Perplexity by context length",
        "Passkey accuracy by context length",
        "Loss (pretrain) along training",
        "Loss by learning rate (pretrain)",
        *(f"Perplexity at {x} by learning rate (perplexity)" for x in (64, 256)),
        *(f"Passkey accuracy at {x} by learning rate (passkey)" for x in (64, 128)),
    }
    losses = made(tmp_path, {"tables": [], "figures": ["pretrain.loss"]})
    assert build_tables(losses) == ()
    assert [figure.title for figure in draw_figures(losses)] == [
        "Loss by learning rate (pretrain)",
        "Loss (pretrain) along training",
    ]
