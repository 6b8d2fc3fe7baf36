"""A needle in a haystack: accuracy of repeating a key, by context length and depth.

One forward pass scores a trial (exact_match.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.tasks.needle import needle_depths, needle_form, needle_trials
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.checkpoint import load_parent
from fope_lab.evaluation.exact_match import exact_match
from fope_lab.evaluation.held_out import held_out_text

if TYPE_CHECKING:
    from fope_lab.stages import Needle
    from fope_lab.store import Attempt

METRIC = "needle_accuracy_by_length"


@dataclass(frozen=True)
class NeedleResult:
    """Which trials of a length were right (depths, trials), and the depths asked for (depths,)."""

    length: int
    depths: tuple[float, ...]
    correct: NDArray[np.bool_]

    @property
    def accuracy(self) -> float:
        """The share of all trials whose every key token was right."""
        return float(self.correct.mean())

    @property
    def stderr(self) -> float | None:
        """The standard error of the accuracy, by trials: those of all depths have one key and one
        text, and so are not independent. None for a single trial."""
        shares = self.correct.mean(axis=0)
        return float(shares.std(ddof=1)) / math.sqrt(len(shares)) if len(shares) > 1 else None

    @property
    def by_depth(self) -> list[float]:
        """The same at each depth."""
        accuracies: list[float] = self.correct.mean(axis=1).tolist()
        return accuracies


def needle_accuracy(
    model: Any,
    tokenizer: Tokenizer,
    length: int,
    *,
    depths: int,
    trials: int,
    form: str = "english",
    text: Any | None = None,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
) -> NeedleResult:
    """Score `trials` prompts of exactly `length` tokens at each of `depths` equally spaced depths.

    `model` is as in exact_match; `text` (n,) are token ids to hide the key in, or None for the
    form's filler. Raises DataError if the prompt does not fit, or the text is too short for it.
    """
    places = needle_depths(depths)
    cells = needle_trials(needle_form(form, tokenizer, text), length, places, trials)
    asked = [trial for cell in cells for trial in cell]
    correct = exact_match(model, asked, batch_tokens=batch_tokens, progress=progress)
    return NeedleResult(length, places, correct.reshape(depths, trials))


def depth_heatmap(results: Sequence[NeedleResult]) -> dict[str, Any]:
    """What a report draws: accuracy by depth (rows) and length (columns)."""
    return {
        "title": "Needle accuracy by depth and context length",
        "metric": "needle_accuracy",
        "x_label": "context length, tokens",
        "y_label": "depth of the needle, %",
        "x": [result.length for result in results],
        "y": [round(100 * depth, 1) for depth in results[0].depths],
        "values": np.stack([result.by_depth for result in results], axis=1).tolist(),
        "low": 0.0,
        "high": 1.0,
    }


def run(stage: Needle, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Log `needle_accuracy_by_length`, the mean over depths, with step = context length."""
    model, tokenizer = load_parent(parents, stage.resources)
    longest = max(stage.lengths)
    text = held_out_text(parents, tokenizer, longest, "a haystack") if stage.corpus else None
    per_length = stage.depths * stage.trials
    total = per_length * sum(stage.lengths)
    done = 0
    results = []
    for length in sorted(stage.lengths):

        def progress(trials: int, length: int = length, before: int = done) -> None:
            attempt.progress(before + trials * length, total)

        result = needle_accuracy(
            model,
            tokenizer,
            length,
            depths=stage.depths,
            trials=stage.trials,
            form=stage.form,
            text=text,
            batch_tokens=stage.batch_tokens,
            progress=progress,
        )
        done += per_length * length
        error = {} if result.stderr is None else {f"{METRIC}_stderr": result.stderr}
        attempt.log(length, {METRIC: result.accuracy, **error})
        results.append(result)
    return {
        "form": stage.form,
        "haystack": "held-out text" if stage.corpus else "filler",
        "lengths": [_entry(result) for result in results],
        "heatmaps": [depth_heatmap(results)],
    }


def _entry(result: NeedleResult) -> dict[str, Any]:
    correct, trials = int(result.correct.sum()), result.correct.size
    return {
        "length": result.length,
        "accuracy": result.accuracy,
        "stderr": result.stderr,
        "correct": correct,
        "trials": trials,
        "by_depth": [
            {"depth": depth, "accuracy": accuracy}
            for depth, accuracy in zip(result.depths, result.by_depth, strict=True)
        ],
    }
