"""An analysis of a paper, of a model or of none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fope_lab.analysis import Analysis
from fope_lab.config.problems import FieldPath
from fope_lab.config.pydantic_errors import SectionError
from fope_lab.data.corpora.base import Corpus
from fope_lab.stages.base import StageConfig
from fope_lab.stages.sections import AnalysisSection, CorpusSection


class AnalysisStage(StageConfig):
    """Arrays and a figure; `fope-lab analyze` lists what there is."""

    version = 1
    entry_point = "fope_lab.evaluation.analysis:run"

    kind: Literal["analysis"]
    analysis: AnalysisSection
    from_: Annotated[str | None, Field(alias="from", min_length=1)] = None
    corpus: CorpusSection | None = None

    def stands_alone(self) -> bool:
        """Some look at no model."""
        return self.from_ is None

    def corpora(self) -> Mapping[str, Corpus]:
        """The text, where one is read."""
        return {} if self.corpus is None else {"corpus": self.corpus}

    @model_validator(mode="after")
    def _what_it_needs(self) -> Self:
        analysis: Analysis = self.analysis
        wanted = {
            "from": (self.from_ is not None, analysis.needs != "nothing", "a model"),
            "corpus": (self.corpus is not None, analysis.needs == "text", "a text"),
        }
        found: list[tuple[FieldPath, str]] = []
        for field, (given, needed, what) in wanted.items():
            if needed and not given:
                found.append(((field,), f"is missing: {analysis.name} looks at {what}"))
            elif given and not needed:
                message = f"has no effect: {analysis.name} looks at no {what.removeprefix('a ')}"
                found.append(((field,), message))
        if found:
            raise SectionError(found)
        return self
