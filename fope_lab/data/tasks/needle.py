"""A needle in a haystack: passkey prompts over a grid of lengths and depths.

Kamradt, "Needle In A Haystack – Pressure Testing LLMs" (github.com/gkamradt/
LLMTest_NeedleInAHaystack, 2023), asks a model for one sentence at equally spaced depths of essays,
and lets another model judge the answer. Here the sentence is YaRN's with a key (passkey.py), so
that the answer is right or wrong token by token, in the repeated filler or in real text. All depths
of one length use the same keys, and a trial uses the same stretch of text at every depth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fope_lab.data.tasks.haystack import HeldOutText
from fope_lab.data.tasks.passkey import PromptForm, Trial, prompt_form


def needle_depths(count: int) -> tuple[float, ...]:
    """Return `count` equally spaced depths from 0 (right after the instruction) to 1 (right before
    the question). A single depth is 0.5."""
    return tuple(np.linspace(0, 1, count).tolist()) if count > 1 else (0.5,)


def needle_form(form: str, tokenizer: Any, text: Any | None = None) -> PromptForm:
    """Return the builder of a form's prompts; the form is `english` or `symbolic`.

    `text` (n,) holds the token ids of the text to hide the key in; None uses the form's own filler.
    Raises DataError if the form accepts no other text, or if the tokenizer can't write the form.
    """
    return prompt_form(form, tokenizer, haystack=None if text is None else HeldOutText(text))


def needle_trials(
    prompts: PromptForm, length: int, depths: tuple[float, ...], trials: int
) -> list[list[Trial]]:
    """Return trials 0 … `trials` − 1 of exactly `length` tokens for each depth: a list of depths,
    each a list of trials."""
    return [[prompts.trial(length, i, depth) for i in range(trials)] for depth in depths]
