"""RULER's key-value and variable-tracking tasks: exactly the values, or variables, asked for.

RULER counts how many of them a generated text holds; here the answer has one spelling, which one
forward pass scores whole (exact_match.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.tasks.ruler_tasks import RulerTask
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.checkpoint import load_parent
from fope_lab.evaluation.exact_match import exact_match
from fope_lab.evaluation.held_out import held_out_text
from fope_lab.evaluation.passkey import wilson_interval

if TYPE_CHECKING:
    from fope_lab.stages import Ruler
    from fope_lab.store import Attempt

METRICS = {
    "key-value": "ruler_key_value_accuracy_by_length",
    "variable-tracking": "ruler_variable_tracking_accuracy_by_length",
}


@dataclass(frozen=True)
class RulerResult:
    """Which trials of a task and length were right, and the level of guessing."""

    length: int
    correct: NDArray[np.bool_]
    chance: float

    @property
    def accuracy(self) -> float:
        """The share of trials whose whole answer was right."""
        return float(self.correct.mean())


def ruler_accuracy(
    model: Any,
    tokenizer: Tokenizer,
    task: RulerTask,
    length: int,
    *,
    trials: int,
    text: Any | None = None,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
) -> RulerResult:
    """Score trials 0 … `trials` − 1 of a task, each of exactly `length` tokens.

    `model` is as in exact_match; `text` (n,) are token ids to hide the statements in, or None for
    the form's filler. Raises DataError if a prompt does not fit, or the text is too short for it.
    """
    prompts = task.prompts(tokenizer, text)
    asked = [prompts.trial(length, i) for i in range(trials)]
    correct = exact_match(model, asked, batch_tokens=batch_tokens, progress=progress)
    return RulerResult(length, correct, prompts.chance)


def run(stage: Ruler, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Log a metric for each task (METRICS), with step = context length."""
    model, tokenizer = load_parent(parents, stage.resources)
    longest = max(stage.lengths)
    text = held_out_text(parents, tokenizer, longest, "a haystack") if stage.corpus else None
    tasks = stage.described()
    for task in tasks.values():
        task.check(tokenizer, min(stage.lengths))  # before any of the work
    total = stage.trials * len(tasks) * sum(stage.lengths)
    done = 0
    entries = []
    chance = {}
    for length in stage.lengths:
        measured = {}
        for name, task in tasks.items():

            def progress(trials: int, length: int = length, before: int = done) -> None:
                attempt.progress(before + trials * length, total)

            result = ruler_accuracy(
                model,
                tokenizer,
                task,
                length,
                trials=stage.trials,
                text=text,
                batch_tokens=stage.batch_tokens,
                progress=progress,
            )
            done += stage.trials * length
            measured[METRICS[name]] = result.accuracy
            chance[METRICS[name]] = result.chance
            correct = int(result.correct.sum())
            entries.append(
                {
                    "metric": METRICS[name],
                    "length": length,
                    "accuracy": result.accuracy,
                    "ci95": list(wilson_interval(correct, stage.trials)),
                    "correct": correct,
                    "trials": stage.trials,
                }
            )
        attempt.log(length, measured)
    return {
        "form": stage.form,
        "haystack": "held-out text" if stage.corpus else "filler",
        "chance": chance,
        "lengths": entries,
    }
