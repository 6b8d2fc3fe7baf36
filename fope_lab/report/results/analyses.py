"""The finished analyses of a sweep: their numbers, and the arrays that their figures show."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fope_lab.analysis import Analysis, Arrays
from fope_lab.analysis.base import ARRAYS
from fope_lab.evaluation.analysis import AnalysisStage
from fope_lab.report.results.axes import read_axes
from fope_lab.report.results.stage_results import StageResult, group_by_section
from fope_lab.store import StageFolder
from fope_lab.sweep.graph import Stage

if TYPE_CHECKING:
    import matplotlib.figure


class DamagedError(Exception):
    """The arrays of an analysis are missing, or no figure can be drawn from them."""


@dataclass(frozen=True)
class AnalysisResult:
    """A finished analysis; `title` names it and the values that set it apart from others."""

    title: str
    stage: Stage
    analysis: Analysis
    numbers: Mapping[str, float]
    folder: Path

    def arrays(self) -> Arrays:
        """Read the arrays from the store. They can be large, so only drawing reads them.

        Raises DamagedError.
        """
        checkpoint = StageFolder(self.folder).checkpoint()
        if checkpoint is None:
            raise DamagedError(f"{self.folder} has no arrays")
        path = checkpoint.path / ARRAYS
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise DamagedError(f"{path} can't be read: {error}") from error

    def draw(self) -> matplotlib.figure.Figure:
        """Draw the arrays. Raises DamagedError."""
        arrays = self.arrays()
        try:
            return self.analysis.draw(arrays)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise DamagedError(
                f"{self.folder} has arrays that {self.analysis.name} can't be drawn from: {error!r}"
            ) from error


def read_analyses(results: Sequence[StageResult]) -> tuple[AnalysisResult, ...]:
    """The finished analyses in the order of the sweep file."""
    analyses = []
    for section, members in group_by_section(results).items():
        axes = read_axes(result.stage for result in members)
        several_seeds = len({result.stage.seed for result in members}) > 1
        for result in members:
            stage, spec = result.stage, result.stage.spec
            if not (isinstance(spec, AnalysisStage) and result.state.is_done):
                continue
            name = spec.analysis.name
            title = name if section == name else f"{name} ({section})"
            parts = [stage.embedding]
            if axes.series:
                parts = [axes.label(stage, section), axes.panel(stage)]
            if several_seeds:
                parts.append(f"seed {stage.seed}")
            if details := ", ".join(filter(None, parts)):
                title = f"{title}: {details}"
            numbers = result.record.numbers
            analyses.append(AnalysisResult(title, stage, spec.analysis, numbers, result.folder))
    return tuple(analyses)
