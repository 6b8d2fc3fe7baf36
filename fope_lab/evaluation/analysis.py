"""An analysis of a paper, of a model or of none: its arrays, its figure, and its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fope_lab.analysis import Analysis, Subject
from fope_lab.analysis.base import ARRAYS, FIGURE
from fope_lab.config.problems import ConfigError, Problem
from fope_lab.data.corpora.base import Corpus
from fope_lab.evaluation.base import Evaluation
from fope_lab.stages.sections import AnalysisSection, CorpusSection

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context


class AnalysisStage(Evaluation):
    """The arrays and the figure of one analysis; `fope-lab analyze` lists all analyses."""

    version = 1

    kind: Literal["analysis"]
    analysis: AnalysisSection
    from_: Annotated[str | None, Field(alias="from", min_length=1)] = None
    corpus: CorpusSection | None = None

    def stands_alone(self) -> bool:
        """Whether the analysis looks at no model."""
        return self.from_ is None

    def corpora(self) -> Mapping[str, Corpus]:
        """The text, where the analysis reads one."""
        return {} if self.corpus is None else {"corpus": self.corpus}

    @model_validator(mode="after")
    def _what_it_needs(self) -> Self:
        analysis: Analysis = self.analysis
        wanted = {
            "from": (self.from_ is not None, analysis.needs != "nothing", "a model"),
            "corpus": (self.corpus is not None, analysis.needs == "text", "a text"),
        }
        problems: list[Problem] = []
        for field, (given, needed, what) in wanted.items():
            if needed and not given:
                problems.append(Problem((field,), f"is missing: {analysis.name} looks at {what}"))
            elif given and not needed:
                message = f"has no effect: {analysis.name} looks at no {what.removeprefix('a ')}"
                problems.append(Problem((field,), message))
        if problems:
            raise ConfigError(problems)
        return self

    def run(self, context: Context) -> dict[str, Any]:
        """Save `arrays.npz` and `figure.svg`, and log the analysis's numbers."""
        from fope_lab.drawing.svg import standalone_svg

        analysis: Analysis = self.analysis
        arrays = analysis.compute(self._subject(context), context.report_progress)
        numbers = analysis.numbers(arrays)

        def write(directory: Path) -> None:
            np.savez_compressed(directory / ARRAYS, allow_pickle=False, **arrays)
            svg = standalone_svg(analysis.draw(arrays), analysis.name, analysis.says)
            (directory / FIGURE).write_text(svg, encoding="utf-8")

        context.log_numbers(numbers)
        context.save(write)
        return {
            "analysis": analysis.name,
            "source": analysis.source,
            "says": analysis.says,
        }

    def _subject(self, context: Context) -> Subject | None:
        """The model, and the beginning of the text, that the analysis looks at."""
        if self.from_ is None:
            return None
        tokens = np.empty(0, np.int64)
        if self.corpus is not None:
            wanted = self.analysis.tokens
            text = context.text("corpus", wanted, f"the analysis {self.analysis.name}")
            tokens = np.asarray(text[:wanted], np.int64)
        return Subject(context.model, context.tokenizer, tokens)  # type: ignore[arg-type]
