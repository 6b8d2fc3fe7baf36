"""What the stages have that read a published benchmark: LongBench and L-Eval."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from fope_lab.config.problems import FieldPath, did_you_mean, name_list
from fope_lab.config.pydantic_errors import SectionError
from fope_lab.data.benchmarks.task_files import TaskFiles
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, may_write_chats
from fope_lab.stages.evaluation import EvaluationConfig
from fope_lab.stages.labels import tokenizer_label
from fope_lab.stages.section import PositiveInt


def _absolute(dataset: str, info: ValidationInfo) -> str:
    """The path of a folder, made absolute; a name on the hub as it is."""
    base = Path.cwd() if info.context is None else info.context["base"]
    files = TaskFiles(dataset, None, "", ())
    try:
        return files.resolved(base).dataset if files.is_local else dataset
    except DataError as error:
        raise SectionError([((), problem.message) for problem in error.problems]) from error


def known_once(known: Iterable[str]) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """For pydantic: a list of tasks, all of them known and none twice."""
    names = list(known)

    def check(tasks: tuple[str, ...]) -> tuple[str, ...]:
        found: list[tuple[FieldPath, str]] = []
        for index, task in enumerate(tasks):
            if task not in names:
                near = did_you_mean(task, names)
                message = f"unknown task {task!r}{near} (allowed: {name_list(names)})"
                found.append(((index,), message))
            elif task in tasks[:index]:
                found.append(((index,), f"names {task} twice"))
        if found:
            raise SectionError(found)
        return tasks

    return check


DatasetName = Annotated[
    str,
    Field(min_length=1, description="on the hub, or a folder: a path beginning with / ./ ../ or ~"),
    AfterValidator(_absolute),
]


class BenchmarkConfig(EvaluationConfig):
    """Questions of several tasks, which the model answers in its own words."""

    version = 1

    dataset: DatasetName
    revision: Annotated[str | None, Field(description="the commit, for a name on the hub")] = None
    tasks: tuple[str, ...]
    context_length: Annotated[
        PositiveInt | None,
        Field(description="of prompt and answer, in tokens; default the model's own"),
    ] = None
    format: Annotated[
        Literal["plain", "chat", "llama2"],
        Field(description="plain text, the tokenizer's chat template, or Llama 2's format"),
    ] = "plain"
    limit: Annotated[PositiveInt | None, Field(description="questions; default all")] = None

    @property
    @abstractmethod
    def files(self) -> TaskFiles:
        """Where the tasks are."""

    @abstractmethod
    def file_names(self) -> list[str]:
        """The files of the tasks."""

    @abstractmethod
    def budget(self) -> tuple[str, int]:
        """The task whose answers may be longest, and how many tokens they may have."""

    @functools.cached_property
    def contents(self) -> dict[str, str]:
        """The SHA-256 of each local file, as it was when the stage was planned."""
        return self.files.identity(self.file_names())

    def check_contents(self) -> None:
        """Raises DataError if a file is not what it was when the stage was planned."""
        planned, found = self.contents, self.files.identity(self.file_names())
        for name in planned:
            if planned[name] != found[name]:
                raise DataError(
                    f"{self.files.local_file(name)} holds something else here than where and when "
                    f"the sweep was planned (SHA-256 {planned[name]}, found {found[name]}); run "
                    "the sweep again to plan with it"
                )

    def identities(self) -> Mapping[str, Any]:
        """The content of local files instead of their place; the commit of the hub's, named or
        not."""
        if self.files.is_local:
            return {"dataset": self.contents}
        return {"revision": self.files.revision}

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """Prompt and answer, where the stage says how long."""
        return None if self.context_length is None else (("context_length",), self.context_length)

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[tuple[FieldPath, str]]:
        """A chat's template that is not there."""
        if self.format == "chat" and not may_write_chats(tokenizer):
            label = tokenizer_label(tokenizer)
            yield ("format",), f"the tokenizer {label} has no chat template to write prompts in"

    @model_validator(mode="after")
    def _files_that_are_there(self) -> Self:
        try:
            files = self.files.resolved(Path.cwd())
            if files.is_local:
                for name in self.file_names():
                    files.local_file(name)
        except DataError as error:
            raise SectionError([(p.at, p.message) for p in error.problems]) from error
        return self

    @model_validator(mode="after")
    def _room_for_a_prompt(self) -> Self:
        task, budget = self.budget()
        if self.context_length is not None and self.context_length <= budget:
            message = (
                f"found {self.context_length}, needs more than the {budget} tokens that an answer "
                f"of {task} may have"
            )
            raise SectionError([(("context_length",), message)])
        return self
