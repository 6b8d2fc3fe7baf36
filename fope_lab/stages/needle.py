"""A needle in a haystack: accuracy by context length and depth."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fope_lab.config.problems import FieldPath
from fope_lab.config.pydantic_errors import SectionError
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.tasks.passkey_task import PasskeyTask
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.stages.evaluation import EvaluationConfig, ForwardPass, task_misfit
from fope_lab.stages.measure import Measure, accuracy_by_length
from fope_lab.stages.section import Lengths, PositiveInt
from fope_lab.stages.sections import CorpusSection


class Needle(EvaluationConfig):
    """Whether the model repeats a key at each of some depths of each context length."""

    version = 1
    entry_point = "fope_lab.evaluation.needle:run"

    kind: Literal["needle"]
    lengths: Lengths
    depths: Annotated[PositiveInt, Field(description="how many, equally spaced from 0 to 1")] = 11
    trials: Annotated[PositiveInt, Field(description="at each length and depth")] = 20
    form: Literal["english", "symbolic"] = "english"
    corpus: Annotated[
        CorpusSection | None,
        Field(description="whose held-out text is the haystack; default the passkey's filler"),
    ] = None

    def corpora(self) -> Mapping[str, Corpus]:
        """The haystack, if it is real text."""
        return {} if self.corpus is None else {"corpus": self.corpus}

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The longest prompt."""
        return ("lengths",), max(self.lengths)

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """A prompt for each trial of each cell."""
        return [ForwardPass(length, self.depths * self.trials) for length in self.lengths]

    def measures(self) -> Iterable[Measure]:
        """The accuracy at each length, over all depths."""
        found = accuracy_by_length("needle", "needle_accuracy_by_length", self.lengths)
        return [dataclasses.replace(found, corpus=self.corpus)]

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[tuple[FieldPath, str]]:
        """The shortest prompt, if it is too short."""
        if misfit := task_misfit(PasskeyTask(form=self.form), min(self.lengths), tokenizer):
            yield ("lengths",), misfit

    @model_validator(mode="after")
    def _text_around_english(self) -> Self:
        if self.corpus is not None and self.form != "english":
            message = f"has no effect: the {self.form} form has a filler of its own"
            raise SectionError([(("corpus",), message)])
        return self
