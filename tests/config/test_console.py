"""What is printed may come from a stranger's store: controls are shown and not sent."""

from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from fope_lab.config.console import plain, plain_console, say
from fope_lab.report.render.documents import latex_text, markdown_text

NASTY = "clear \x1b[2J title \x1b]0;mine\x07 back\b one\x9b31m \u202eturned\u202c"
SHOWN = r"clear \x1b[2J title \x1b]0;mine\x07 back\x08 one\x9b31m \u202eturned\u202c"


def test_controls_are_shown() -> None:
    assert plain(NASTY) == SHOWN
    assert plain("two\nlines\tand ümläuts → …") == "two\nlines\tand ümläuts → …"
    assert plain("50 %\r100 %") == r"50 %\r100 %"


@given(st.text())
def test_no_control_is_left(text: str) -> None:
    kept = {unicodedata.category(letter) for letter in plain(text) if letter not in "\n\t"}
    assert "Cc" not in kept
    assert plain(plain(text)) == plain(text)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_console_sends_its_own_codes_alone(terminal: bool) -> None:
    file = io.StringIO()
    console = plain_console(
        file=file, force_terminal=terminal, color_system="standard" if terminal else None, width=200
    )
    say(console, NASTY, style="bold")
    table = Table("stage", "why")
    table.add_row(Text(NASTY), Text("red", style="red"))
    console.print(table)
    told = file.getvalue()
    assert told.count(r"clear \x1b[2J title \x1b]0;mine") == 2
    assert ("\x1b[1m" in told and "\x1b[31mred" in told) is terminal
    for sent in ("\x1b[2J", "\x1b]0", "\x07", "\b", "\x9b", "\u202e"):
        assert sent not in told


def test_documents_have_no_controls_and_one_line() -> None:
    """As in LaTeX's comment with the commit, which a line break would end."""
    for text in (latex_text(f"{NASTY}\n\\input{{x}}"), markdown_text(f"{NASTY}\nnext")):
        assert "\n" not in text
        assert "\x1b" not in text
