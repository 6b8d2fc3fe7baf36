"""What an evaluation is: options, the metrics that it measures, and a run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.options import Lengths, PositiveInt
from fope_lab.config.problems import FieldPath, Problem
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, may_write_chats
from fope_lab.stages.base import ChildConfig, ForwardPass, StageConfig
from fope_lab.stages.labels import tokenizer_label
from fope_lab.stages.sections import EmbeddingSection, PrefixOption

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context


LengthsOption = Annotated[Lengths, Doc("The context lengths to measure at, in tokens.")]


@dataclass(frozen=True, kw_only=True)
class Evaluation(StageConfig):
    """A stage that trains nothing: it measures a model, or draws what a paper draws of none."""

    version = 1
    entry_point = "fope_lab.evaluation.context:run"

    embedding: Annotated[
        EmbeddingSection | None,
        Doc(
            "The embedding that takes the place of the model's own, without training. By default"
            " the model keeps its own."
        ),
    ] = None
    """None once a sweep is resolved: the parent is then a stage that gives the model this one."""

    def without_swap(self) -> tuple[StageConfig, EmbeddingSection | None]:
        if self.embedding is None:
            return self, None
        return replace(self, embedding=None), self.embedding

    @abstractmethod
    def run(self, context: Context) -> dict[str, Any]:
        """Measure, log what `metrics` declares, and return what only running decided. The numbers
        depend on the result, such as how many tokens were read, and reports list it among the
        stage's settings. They list options from the configuration."""


@dataclass(frozen=True, kw_only=True)
class ModelEvaluation(Evaluation, ChildConfig):
    """An evaluation of the model that another stage, or a checkpoint, leaves."""

    measures_model = True
    divisible = True
    excluded_from_key = StageConfig.excluded_from_key | {"batch_tokens"}

    batch_tokens: Annotated[
        PositiveInt, Doc("The most tokens that the model reads at once. It changes no number.")
    ] = 16_384
    prefix: PrefixOption = "tokenizer"

    def tells_progress(self) -> bool:
        return True

    def largest_batches(self) -> Iterable[ForwardPass] | None:
        longest = self.max_sequence_length()
        if longest is None:
            return None
        passes = self.forward_passes() or ()
        lengths = {longest[1], *(each.length for each in passes if each.sequences)} - {0}
        return [ForwardPass(length, max(1, self.batch_tokens // length)) for length in lengths]

    def with_smaller_batches(self) -> Iterator[tuple[str, StageConfig]]:
        for size in takewhile(bool, (self.batch_tokens >> power for power in count(1))):
            yield f"batch_tokens {size}", replace(self, batch_tokens=size)


@dataclass(frozen=True, kw_only=True)
class PromptedEvaluation(ModelEvaluation):
    """An evaluation of what the model answers to prompts of text."""

    format: Annotated[
        Literal["plain", "chat"],
        Doc("How a prompt is written: as plain text, or in the tokenizer's chat template."),
    ] = "plain"
    context_length: Annotated[
        Annotated[int, Interval(ge=2)] | None,
        Doc(
            "The most tokens of prompt and answer together; the default is the length that the "
            "model was trained at."
        ),
    ] = None

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        return None if self.context_length is None else (("context_length",), self.context_length)

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[Problem]:
        """A chat template that the tokenizer lacks."""
        if self.format == "chat" and not may_write_chats(tokenizer):
            label = tokenizer_label(tokenizer)
            message = f"the tokenizer {label} has no chat template to write prompts in"
            yield Problem(("format",), message)
