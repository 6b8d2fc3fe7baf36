"""Passkey retrieval: whether a model repeats a key that is hidden in filler.

One forward pass scores a trial (exact_match.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.tasks.passkey import prompt_form
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.checkpoint import load_parent
from fope_lab.evaluation.exact_match import exact_match

if TYPE_CHECKING:
    from fope_lab.stages import Passkey
    from fope_lab.store import Attempt

DEPTHS = 10


@dataclass(frozen=True)
class PasskeyResult:
    """Which trials of a length were right, and at which depth in [0, 1] their keys lay."""

    length: int
    correct: NDArray[np.bool_]
    depths: NDArray[np.float64]

    @property
    def accuracy(self) -> float:
        """The share of trials whose every key token was right."""
        return float(self.correct.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy."""
        return wilson_interval(int(self.correct.sum()), len(self.correct))

    @property
    def by_depth(self) -> list[dict[str, float]]:
        """Accuracy and number of trials in each tenth of the depths that holds a trial."""
        tenth = np.minimum((self.depths * DEPTHS).astype(int), DEPTHS - 1)
        return [
            {
                "depth": (index + 0.5) / DEPTHS,
                "accuracy": float(self.correct[tenth == index].mean()),
                "trials": int((tenth == index).sum()),
            }
            for index in range(DEPTHS)
            if (tenth == index).any()
        ]


def passkey_accuracy(
    model: Any,
    tokenizer: Tokenizer,
    length: int,
    *,
    trials: int,
    form: str = "english",
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
) -> PasskeyResult:
    """Score trials 0 … `trials` − 1 of exactly `length` tokens, about `batch_tokens` at a time.

    `model.hidden(input_ids)` is (batch, length, …), and `model.head` of a part of it is that part's
    logits (batch, part, vocabulary). Raises DataError if the prompt does
    not fit; what the model itself raises is an error too, never a wrong answer.
    """
    prompts = prompt_form(form, tokenizer)
    asked = [prompts.trial(length, i) for i in range(trials)]
    correct = exact_match(model, asked, batch_tokens=batch_tokens, progress=progress)
    return PasskeyResult(length, correct, np.array([trial.depth for trial in asked]))


def wilson_interval(correct: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a binomial share (Wilson 1927)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = correct / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    spread = math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    half = z / (1 + z * z / trials) * spread
    # Around the share, which rounding may leave just outside where it is 0 or 1.
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))


def run(stage: Passkey, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Log `passkey_accuracy_by_length` with step = context length."""
    model, tokenizer = load_parent(parents, stage.resources)
    total = stage.trials * sum(stage.lengths)
    done = 0
    results = []
    for length in stage.lengths:

        def progress(trials: int, length: int = length, before: int = done) -> None:
            attempt.progress(before + trials * length, total)

        result = passkey_accuracy(
            model,
            tokenizer,
            length,
            trials=stage.trials,
            form=stage.form,
            batch_tokens=stage.batch_tokens,
            progress=progress,
        )
        done += stage.trials * length
        attempt.log(length, {"passkey_accuracy_by_length": result.accuracy})
        low, high = result.interval
        results.append(
            {
                "length": length,
                "accuracy": result.accuracy,
                "ci95": [low, high],
                "correct": int(result.correct.sum()),
                "trials": stage.trials,
                "by_depth": result.by_depth,
            }
        )
    return {"form": stage.form, "lengths": results}
