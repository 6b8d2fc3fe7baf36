"""RULER's key-value and variable-tracking tasks by context length."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, Strict, model_validator

from fope_lab.config.problems import FieldPath
from fope_lab.config.pydantic_errors import SectionError
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.problems import DataError
from fope_lab.data.tasks.ruler_tasks import KeyValueTask, RulerTask, VariableTrackingTask
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.stages.evaluation import EvaluationConfig, ForwardPass, task_misfit
from fope_lab.stages.measure import Measure, accuracy_by_length
from fope_lab.stages.section import Lengths, PositiveInt, each_once
from fope_lab.stages.sections import CorpusSection

TaskName = Literal["key-value", "variable-tracking"]
OPTIONS: Mapping[TaskName, tuple[str, ...]] = {
    "key-value": ("keys", "queries", "digits"),
    "variable-tracking": ("chains", "hops"),
}
"""The fields that are about one task alone."""


class Ruler(EvaluationConfig):
    """Whether the model gives exactly the values, or variables, that a prompt asks for."""

    version = 1
    entry_point = "fope_lab.evaluation.ruler:run"

    kind: Literal["ruler"]
    lengths: Lengths
    tasks: Annotated[
        tuple[TaskName, ...], Strict(False), Field(min_length=1), AfterValidator(each_once)
    ] = ("key-value", "variable-tracking")
    trials: Annotated[PositiveInt, Field(description="of each task at each length")] = 500
    form: Literal["english", "symbolic"] = "english"
    keys: Annotated[PositiveInt, Field(description="hidden, of key-value")] = 4
    queries: Annotated[PositiveInt, Field(description="of the keys, asked for at once")] = 1
    digits: Annotated[int, Field(ge=1, le=9, description="of each key's value")] = 7
    chains: Annotated[PositiveInt, Field(description="of variables; RULER has one")] = 1
    hops: Annotated[PositiveInt, Field(description="from variable to variable in a chain")] = 4
    corpus: Annotated[
        CorpusSection | None,
        Field(description="whose held-out text is the haystack; default the passkey's filler"),
    ] = None

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """Both."""
        return tuple(OPTIONS)

    def described(self) -> dict[TaskName, RulerTask]:
        """The tasks with their options, by name."""
        make: Mapping[TaskName, Callable[[], RulerTask]] = {
            "key-value": lambda: KeyValueTask(
                form=self.form, keys=self.keys, queries=self.queries, digits=self.digits
            ),
            "variable-tracking": lambda: VariableTrackingTask(
                form=self.form, chains=self.chains, hops=self.hops
            ),
        }
        return {name: make[name]() for name in self.tasks}

    def corpora(self) -> Mapping[str, Corpus]:
        """The haystack, if it is real text."""
        return {} if self.corpus is None else {"corpus": self.corpus}

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The longest prompt."""
        return ("lengths",), max(self.lengths)

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        """A prompt for each trial of each task."""
        return [ForwardPass(length, self.trials * len(self.tasks)) for length in self.lengths]

    def measures(self) -> Iterable[Measure]:
        """The accuracy of each task at each length."""
        for task in self.tasks:
            metric = f"ruler_{task.replace('-', '_')}_accuracy_by_length"
            found = accuracy_by_length(task, metric, self.lengths)
            yield dataclasses.replace(found, corpus=self.corpus)

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[tuple[FieldPath, str]]:
        """The shortest prompt of each task that is too short."""
        for task in self.described().values():
            if misfit := task_misfit(task, min(self.lengths), tokenizer):
                yield ("lengths",), misfit

    @model_validator(mode="after")
    def _possible(self) -> Self:
        found: list[tuple[FieldPath, str]] = [
            ((option,), f"has no effect: {task} is not among the tasks")
            for task, options in OPTIONS.items()
            for option in options
            if task not in self.tasks and option in self.model_fields_set
        ]
        if self.corpus is not None and self.form != "english":
            message = f"has no effect: the {self.form} form has a filler of its own"
            found.append((("corpus",), message))
        try:
            self.described()
        except DataError as error:
            found += [(problem.at, problem.message) for problem in error.problems]
        if found:
            raise SectionError(found)
        return self
