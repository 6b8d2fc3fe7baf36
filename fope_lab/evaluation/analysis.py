"""A stage that analyses: the arrays, the figure, and what it says in numbers, into the store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fope_lab.analysis import Analysis, Subject
from fope_lab.analysis.base import ARRAYS, FIGURE
from fope_lab.drawing.svg import standalone_svg
from fope_lab.evaluation.checkpoint import load_parent
from fope_lab.evaluation.held_out import held_out_text

if TYPE_CHECKING:
    from fope_lab.stages.analysis import AnalysisStage
    from fope_lab.store import Attempt


def run(stage: AnalysisStage, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Save `arrays.npz` and `figure.svg`, and log the numbers."""
    analysis: Analysis = stage.analysis
    arrays = analysis.compute(_subject(stage, parents), attempt.progress)
    numbers = analysis.numbers(arrays)

    def write(directory: Path) -> None:
        np.savez_compressed(directory / ARRAYS, allow_pickle=False, **arrays)
        svg = standalone_svg(analysis.draw(arrays), analysis.name, analysis.says)
        (directory / FIGURE).write_text(svg, encoding="utf-8")

    if numbers:
        attempt.log(0, numbers)
    attempt.save_checkpoint(0, write)
    return {
        "analysis": analysis.name,
        "source": analysis.source,
        "says": analysis.says,
        "numbers": numbers,
    }


def _subject(stage: AnalysisStage, parents: Mapping[str, Path]) -> Subject | None:
    if stage.from_ is None:
        return None
    model, tokenizer = load_parent(parents, stage.resources)
    tokens = np.empty(0, np.int64)
    if stage.corpus is not None:
        wanted, name = stage.analysis.tokens, f"the analysis {stage.analysis.name}"
        tokens = np.asarray(held_out_text(parents, tokenizer, wanted, name)[:wanted], np.int64)
    return Subject(model, tokenizer, tokens)  # type: ignore[arg-type]
