"""An analysis of a paper, of a model or of none: its arrays, its figure, and its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import MinLen

from fope_lab.analysis import Analysis, Arrays, Subject, analysis_json_schema, parse_analysis
from fope_lab.config.annotations import Doc
from fope_lab.config.problems import Problem, missing
from fope_lab.data.corpora.base import Corpus
from fope_lab.evaluation.base import Evaluation
from fope_lab.stages.metric import ARRAYS, POSITION, Measurement, Metric
from fope_lab.stages.sections import CorpusSection, section

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context

FIGURE = "figure.svg"
"""The file with the figure of the arrays, beside them."""
AnalysisSection = Annotated[Analysis, section("analyses", parse_analysis, analysis_json_schema)]


@dataclass(frozen=True, kw_only=True)
class AnalysisStage(Evaluation, kind="analysis"):
    """The arrays and the figure of one analysis; `fope-lab analyze` lists all analyses."""

    analysis: AnalysisSection
    from_: Annotated[
        Annotated[str, MinLen(1)] | None,
        Doc("The stage or checkpoint that leaves the model, where the analysis looks at one."),
    ] = field(default=None, metadata={"option": "from"})
    corpus: Annotated[
        CorpusSection | None, Doc("The corpus whose held-out text the analysis reads.")
    ] = None

    def stands_alone(self) -> bool:
        """Whether the analysis looks at no model."""
        return self.from_ is None

    def tells_progress(self) -> bool:
        """Those that look at a model do, as they read a text or go through its layers."""
        return self.analysis.needs != "nothing"

    def corpora(self) -> Mapping[str, Corpus]:
        """The text, where the analysis reads one."""
        return {} if self.corpus is None else {"corpus": self.corpus}

    def metrics(self) -> Iterable[Metric]:
        """The curves that the analysis declares, over the position of a token."""
        for name, positions in self.analysis.curves.items():
            yield Metric(
                name=f"{name}_by_{POSITION.name}",
                short_name=name,
                better=None,
                unit="number",
                axis=POSITION,
                xs=tuple(positions),
            )

    def number_names(self) -> Iterable[str]:
        """The numbers that the analysis declares."""
        return self.analysis.number_words

    def picture(self) -> Analysis:
        return self.analysis

    def problems(self) -> Iterable[Problem]:
        """A model or a text that the analysis needs and lacks."""
        yield from super().problems()
        needs = self.analysis.needs
        if needs != "nothing" and self.from_ is None:
            yield missing(("from",), f"{self.analysis.name} looks at a model")
        if needs == "text" and self.corpus is None:
            yield missing(("corpus",), f"{self.analysis.name} looks at a text")

    def idle_options(self) -> Mapping[str, str]:
        """A model or a text that the analysis does not look at."""
        needs, name = self.analysis.needs, self.analysis.name
        idle = {} if needs == "text" else {"corpus": f"{name} looks at no text"}
        no_model = dict.fromkeys(("from", "embedding"), f"{name} looks at no model")
        return idle if needs != "nothing" else idle | no_model

    def run(self, context: Context) -> dict[str, Any]:
        """Save `arrays.npz` and `figure.svg`, and log the analysis's numbers and curves."""
        analysis: Analysis = self.analysis
        arrays = analysis.compute(self._subject(context), context.report_progress)
        numbers = {name: float(value) for name, value in analysis.numbers(arrays).items()}

        def write(directory: Path) -> None:
            np.savez_compressed(directory / ARRAYS, allow_pickle=False, **arrays)
            (directory / FIGURE).write_text(analysis.svg(arrays), encoding="utf-8")

        context.log_numbers(numbers)
        position = attrgetter("x")
        for _, at_once in groupby(sorted(self._measured(arrays), key=position), key=position):
            context.log(*at_once)
        context.save(write)
        return {"analysis": analysis.name, "source": analysis.source, "says": analysis.says}

    def _measured(self, arrays: Arrays) -> Iterator[Measurement]:
        """The points of all curves."""
        for name, values in self.analysis.curve_values(arrays).items():
            for position, value in zip(self.analysis.curves[name], values, strict=True):
                yield Measurement(name=f"{name}_by_{POSITION.name}", x=position, value=value)

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
