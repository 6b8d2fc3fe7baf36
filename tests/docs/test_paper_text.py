"""Quotations in a text with all that converters do to words, and in none that has other words."""

from __future__ import annotations

import pytest

from docs.paper_text import MOST_LEFT_OUT, PaperText

TEXT = PaperText(
    "Our ﬁrst “claim” is about atten-\ntion. ALiBi’s perplexity,FoPE says(Su et al., [2024]),\n"
    "stays low – for 0–4k tokens. By grid searching σ𝜎\\sigmaitalic_σ from 0 to 0.5, we find that\n"
    "setting\n"
    "σ=0.3𝜎0.3\\sigma=0.3italic_σ = 0.3 for 60M model obtain the best result. With L 𝐿 L italic_L\n"
    "tokens of value 7absent7\\approx 7≈ 7, a base of 10,0001000010{,}00010 , 000 is used. "
    + "Other words follow here. " * (MOST_LEFT_OUT // 24)
    + "At last it ends."
)


@pytest.mark.parametrize(
    "quote",
    [
        'Our first "claim" is about attention.',
        "ALiBi's perplexity, FoPE says (Su et al., [2024]), stays low - for 0-4k tokens.",
        "setting σ = 0.3 for 60M model obtain the best result",
        "grid searching σ from 0 to 0.5, we find",
        "With L tokens of value ≈ 7, a base of 10,000 is used.",
        "Our first [...] is about attention. [...] stays low",
        "[...] perplexity, FoPE says [...]",
    ],
)
def test_a_quotation_is_found(quote: str) -> None:
    assert TEXT.find(quote) is None


WRONG = {
    "setting σ = 0.3 for model obtain": "setting σ = 0.3 for",  # words left out silently
    "setting σ = 0.3 for each 60M model": "setting σ = 0.3 for",  # a word too many
    "setting σ = 0.4 for 60M model": "setting σ =",  # another number
    "grid searching σ from 0 to 0.55": "grid searching σ from 0 to",
    "a base of 10,00 is used": "a base of",  # the beginning of a number
    "perplexity FoPE": "perplexity",  # a comma left out
    "alibi's perplexity": "",  # other capitals
    "stays high": "stays",  # another word
    "stays low [...] is about attention": "stays low [...] is",  # another order
    "setting σ = 0.3 [...] for each": "setting σ = 0.3 [...] for",
    "setting σ = 0.3 (for) 60M": "setting σ = 0.3",
    "": "",
    "[...]": "",
}


@pytest.mark.parametrize("quote", WRONG)
def test_another_is_not_found_and_said_how_far_it_goes(quote: str) -> None:
    missing = TEXT.find(quote)
    assert missing is not None
    assert missing.found == WRONG[quote]


def test_an_omission_is_not_most_of_a_section() -> None:
    missing = TEXT.find("Our first [...] At last it ends.")
    assert missing is not None
    assert str(missing) == "leaves out more than 1,500 characters at [...]"
    assert TEXT.find("Other words follow here. [...] At last it ends.") is None
