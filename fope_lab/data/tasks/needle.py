"""A needle in a haystack: passkey prompts over a grid of lengths and depths.

Kamradt, "Needle In A Haystack – Pressure Testing LLMs" (github.com/gkamradt/
LLMTest_NeedleInAHaystack, 2023), asks a model for one sentence at equally spaced depths of essays,
and lets another model judge the answer. Here the sentence is YaRN's with a key (passkey.py), so
that the answer is right or wrong token by token, in the repeated filler or in real text. The cells
of one length have the same keys, and each trial the same stretch of text at all depths.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fope_lab.data.tasks.haystack import HeldOutText
from fope_lab.data.tasks.passkey import PromptForm, Trial, prompt_form


def needle_depths(count: int) -> tuple[float, ...]:
    """`count` equally spaced depths from 0, right after the task, to 1, right before the question;
    one is in the middle."""
    return tuple(np.linspace(0, 1, count).tolist()) if count > 1 else (0.5,)


def needle_form(form: str, tokenizer: Any, text: Any | None = None) -> PromptForm:
    """What builds the prompts of a form, `english` or `symbolic`: `trial(length, trial, depth)`.

    `text` (n,) are token ids to hide the key in; None takes the form's own filler. Raises DataError
    if the form can't have another text or the tokenizer can't write it.
    """
    return prompt_form(form, tokenizer, haystack=None if text is None else HeldOutText(text))


def needle_trials(
    prompts: PromptForm, length: int, depths: tuple[float, ...], trials: int
) -> list[list[Trial]]:
    """Trials 0 … `trials` − 1 of exactly `length` tokens at each depth: depths × trials."""
    return [[prompts.trial(length, i, depth) for i in range(trials)] for depth in depths]
