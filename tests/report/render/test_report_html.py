"""The page: whole, self-contained, escaped, and with every number in it."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_samples import finish, links_of, make_report, write_plan

from fope_lab.report import Report, RunLinks, build_report
from fope_lab.report.render.documents import format_count, format_moment, render_html
from fope_lab.report.render.tables import build_tables
from fope_lab.report.results.summary import format_seconds
from fope_lab.store.root import Store
from fope_lab.sweep import Plan

VOID = {"meta", "br", "hr", "img", "link", "input", "wbr"}
NAMES_A_PLACE = {"src", "href", "srcset", "action", "data", "poster", "xlink:href"}


class Page(HTMLParser):
    """Reads a page and complains about tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.in_word = False
        self.places: list[str] = []
        self.ids: list[str] = []
        self.titles: list[str] = []
        self.events: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.places += [value or ""] if name in NAMES_A_PLACE else []
            self.ids += [value or ""] if name == "id" else []
            self.titles += [value or ""] if name == "title" else []
            self.events += [name] if name.startswith("on") else []
        if tag not in VOID:
            self.open.append(tag)
        self.in_word = tag == "wbr"  # a place for a break within a word, which goes on after it

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.in_word:
            self.text[-1] += data
        else:
            self.text.append(data)
        self.in_word = False

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def script_of(text: str) -> str:
    """The page's script, without the names of XML that it needs."""
    script = text.partition("<script>")[2].partition("</script>")[0]
    return script.replace("http://www.w3.org/2000/svg", "")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return write_plan(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def report(plan: Plan) -> Report:
    store = Store(plan.sweep.path.parent / "store")
    finish(
        plan,
        store,
        skip={"pretrain[embedding=nope,seed=2]"},
        fail={"perplexity[embedding=alibi,seed=1]": "CUDA out of memory\nsecond line"},
    )
    return make_report(plan, store)


def test_the_page_is_well_formed_and_asks_for_nothing(plan: Plan, report: Report) -> None:
    text = render_html(replace(report, links=links_of(plan)))
    page = Page(text)
    assert page.tags.isdisjoint({"link", "img", "iframe", "object", "embed", "base"})
    assert text.count("<script") == text.count("<script>\n") == 1  # ours, which names no place
    assert not re.search(r"https?:|fetch|XMLHttpRequest|import\b|eval", script_of(text))
    links = set(links_of(plan).addresses.values())
    for place in page.places:
        assert place.startswith("#") or place in links
    assert not re.search(r"@import|url\((?!#)|@font-face", text)
    assert len(page.ids) == len(set(page.ids))
    anchors = {place[1:] for place in page.places if place.startswith("#")}
    assert anchors <= set(page.ids)
    assert text.startswith("<!doctype html>")


def test_every_number_is_there_with_its_runs(plan: Plan, report: Report) -> None:
    addresses = links_of(plan).addresses
    text = render_html(replace(report, links=links_of(plan)))
    page = Page(text)
    for table in build_tables(report):
        assert table.title in page.words
        for row in table.rows:
            for entry in row.entries:
                assert entry.text in page.words
                assert entry.title in page.titles
                assert entry.cell is not None
                for value in entry.cell.values:
                    assert f'href="{html.escape(addresses[value.key])}"' in text


def test_every_stage_is_listed_with_what_became_of_it(report: Report) -> None:
    page = Page(render_html(report))
    for result in report.stages:
        assert result.stage.label in page.words
        assert result.stage.key in page.words
        assert result.state.reason in page.words
    assert "34 of 38 stages are done; 1 failed, 3 not started." in page.words
    assert "perplexity[embedding=alibi,seed=1]: failed: CUDA out of memory" in page.words
    assert "second line" not in page.words
    assert "passkey[embedding=nope,seed=2]: not started: waits for" in page.words


def test_settings_and_provenance_are_stated(report: Report) -> None:
    words = Page(render_html(report)).words
    for setting in ("method: chunked", "trials: 200", "learning_rate: 0.0006", "type: fourier"):
        assert setting in words
    assert "commit abc1234" in words


def test_hostile_text_stays_text(tmp_path: Path, store: Store) -> None:
    hostile = "\"><script>alert('1')</script><img src=x onerror=alert(2)>"
    plan = write_plan(tmp_path, {"description": hostile, "seeds": [0]})
    finish(plan, store, fail={"pretrain[embedding=rope,seed=0]": hostile})
    report = build_report(plan.sweep, store, provenance={hostile: hostile})
    links = {stage.key: f"http://x/{hostile}" for stage in plan.sweep.stages}
    text = render_html(replace(report, links=RunLinks(addresses=links)))
    page = Page(text)
    assert page.tags.isdisjoint({"img"})
    assert text.count("<script") == 1
    assert "alert" not in script_of(text)
    assert page.events == []
    assert hostile in "".join(page.text)
    assert f"http://x/{hostile}" in page.places


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd"])
def test_only_web_addresses_become_links(tmp_path: Path, store: Store, url: str) -> None:
    plan = write_plan(tmp_path, {"seeds": [0]})
    finish(plan, store)
    links = dict.fromkeys((stage.key for stage in plan.sweep.stages), url)
    report = build_report(plan.sweep, store, provenance={})
    run_links = RunLinks(addresses=links, views={"perplexity": url})
    assert url not in Page(render_html(replace(report, links=run_links))).places


def test_the_header_links_to_the_views_in_mlflow(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path, {"seeds": [0]})
    report = build_report(plan.sweep, store, provenance={})
    assert "In MLflow" not in Page(render_html(report)).words
    views = {"perplexity": "http://x/#/1", "results": "https://y/#/2"}
    page = Page(render_html(replace(report, links=RunLinks(views=views))))
    assert "In MLflow: perplexity · results" in page.words
    assert set(views.values()) <= set(page.places)


def test_the_files_that_changed_are_listed_below_and_not_in_the_header(
    tmp_path: Path, store: Store
) -> None:
    plan = write_plan(tmp_path)
    provenance = {"commit": "abc1234", "changed since": "loop.py (3)"}
    page = render_html(build_report(plan.sweep, store, provenance=provenance))
    header, _, rest = page.partition("</header>")
    assert "abc1234" in header
    assert "loop.py" not in header
    assert "loop.py (3)" in rest


def test_without_any_result_the_page_says_so(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path)
    report = build_report(plan.sweep, store, provenance={})
    words = Page(render_html(report)).words
    assert "0 of 38 stages are done; 38 not started." in words
    assert "Nothing to draw yet." in words
    assert "No result yet: 0 of 12 stages are done." in words


def test_both_kinds_of_paper_are_styled(report: Report) -> None:
    text = render_html(report)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    used = set(re.findall(r"var\((--[\w-]+)\)", text))
    light, dark = text.split("prefers-color-scheme: dark")[:2]
    dark = dark[: dark.index("</style>")].split("* {")[0]
    for variable in used:
        assert f"{variable}:" in light
        assert f"{variable}:" in dark


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (950, "950"), (50_304, "50.3k"), (1.2e9, "1.2B"), (4e19, "40E")],
)
def test_counts(value: float | None, text: str) -> None:
    assert format_count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.04, "0.0 s"), (12.4, "12 s"), (185, "3 min 5 s"), (7800, "2 h 10 min")],
)
def test_durations(value: float | None, text: str) -> None:
    assert format_seconds(value) == text


def test_moments_are_in_utc() -> None:
    assert format_moment(0.0) == "1970-01-01 00:00 UTC"
