"""The page's script in a real browser: curves are switched off, and values are told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_samples import report_of

from fope_lab.report.files import write_report
from fope_lab.store.root import Store

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(tmp_path: Path, store: Store, browser: Any) -> Iterator[Any]:
    """The report of the sample sweep; an error of its script fails the test."""
    written = write_report(report_of(tmp_path, store), tmp_path / "report")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(written.page.as_uri())
    yield page
    page.close()
    assert errors == []


def test_a_curve_is_switched_off_and_on(page: Any) -> None:
    figure = page.locator("figure", has_text="Perplexity by context length").first
    other = page.locator("figure", has_text="Passkey accuracy by context length").first
    button = figure.get_by_role("button", name="alibi")
    parts = figure.locator('[data-series="alibi"]')
    assert parts.count() > 0
    for pressed in ("false", "true"):
        button.click()
        assert button.get_attribute("aria-pressed") == pressed
        shown = [parts.nth(i).is_visible() for i in range(parts.count())]
        assert any(shown) == (pressed == "true")
        assert figure.locator('[data-series="rope"]').first.is_visible()
        assert other.locator('[data-series="alibi"]').first.is_visible()


def test_a_phone_shows_every_name_and_breaks_no_word(page: Any) -> None:
    page.set_viewport_size({"width": 400, "height": 900})
    names = page.locator("figure svg [data-series] text")
    edges = [names.nth(i).bounding_box() for i in range(names.count())]
    assert edges
    assert all(box["x"] + box["width"] <= 400 for box in edges)
    rows = page.locator("#tables td.label", has_text="alibi")
    assert max(rows.nth(i).bounding_box()["height"] for i in range(rows.count())) < 40
    assert page.evaluate("document.documentElement.scrollWidth") == 400


def test_the_value_under_the_pointer_is_told(page: Any) -> None:
    svg = page.locator("figure svg").first
    svg.scroll_into_view_if_needed()
    box, width = svg.bounding_box(), float(svg.get_attribute("width"))
    curves = {c["label"]: c["points"] for c in json.loads(svg.get_attribute("data-points"))}
    scale = box["width"] / width
    for x, y, text in curves["rope"]:
        page.mouse.move(box["x"] + x * scale, box["y"] + y * scale)
        assert page.locator(".value").is_visible()
        label, _, told = page.locator(".value").inner_text().partition(": ")
        assert label in curves  # that of a curve in the same place is as near
        assert told.endswith(text.rpartition(" ")[2])
    page.mouse.move(0, 0)
    assert not page.locator(".value").is_visible()


def test_what_is_switched_off_is_not_told(page: Any) -> None:
    figure = page.locator("figure").first
    svg = figure.locator("svg").first
    for label in ("nope", "alibi", "fope"):
        figure.get_by_role("button", name=label).click()
    svg.scroll_into_view_if_needed()
    box, width = svg.bounding_box(), float(svg.get_attribute("width"))
    [rope] = [c for c in json.loads(svg.get_attribute("data-points")) if c["label"] == "rope"]
    scale = box["width"] / width
    for x, y, text in rope["points"]:
        page.mouse.move(box["x"] + x * scale, box["y"] + y * scale)
        assert page.locator(".value").inner_text() == f"rope: {text}"
