"""Algorithmic tasks: whether a model's answers are right for longer inputs than it was trained on.

Huang et al., "A Formal Framework for Understanding Length Generalization in Transformers", arXiv
2410.02140: an answer is right if each of its tokens, and <eos> behind it, is the argmax after the
right tokens before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fope_lab.config.annotations import Doc
from fope_lab.config.options import Lengths, PositiveInt
from fope_lab.config.problems import FieldPath, Problem
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import Data
from fope_lab.data.rows import IGNORED
from fope_lab.data.tasks.algorithmic import SUBTASK_DOC, SUBTASKS, AlgorithmicSubtask, Subtask
from fope_lab.data.tasks.algorithmic_task import (
    AlgorithmicTask,
    Frame,
    range_problem,
    symbols_problem,
)
from fope_lab.data.tokenizers.recipe import TokenizerRecipe
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.base import ModelEvaluation
from fope_lab.stages.base import ForwardPass, StageConfig
from fope_lab.stages.metric import INPUT_LENGTH, Measurement, Metric
from fope_lab.stages.training import TrainingConfig
from fope_lab.statistics.intervals import wilson_interval

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context

ACCURACY = "algorithmic_accuracy_by_input_length"
WITHIN = "algorithmic_accuracy"


@dataclass(frozen=True, kw_only=True)
class Algorithmic(ModelEvaluation, kind="algorithmic"):
    """Whether the model's answers to an algorithmic task are right, for inputs as long as those of
    the training and for longer ones."""

    subtask: Annotated[Subtask, Doc(SUBTASK_DOC)]
    lengths: Annotated[
        Lengths,
        Doc(
            "The longest inputs of each range, in symbols: [50, 100, 150] are the ranges up to 50,"
            " 51 to 100 and 101 to 150. The first range is that of the training."
        ),
    ] = (50, 100, 150)
    count: Annotated[PositiveInt, Doc("The number of strings in each range.")] = 2000

    @property
    def definition(self) -> AlgorithmicSubtask:
        return SUBTASKS[self.subtask]

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The shortest and the longest input of each range, in symbols, ascending."""
        shortest = 0
        for longest in sorted(self.lengths):
            yield shortest, longest
            shortest = longest + 1

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        return ("lengths",), self.definition.tokens(max(self.lengths)) - 1

    def forward_passes(self) -> Iterable[ForwardPass] | None:
        return [
            ForwardPass(self.definition.tokens((shortest + longest) // 2) - 1, self.count)
            for shortest, longest in self.ranges()
        ]

    def metrics(self) -> Iterable[Metric]:
        within = Metric(
            name=WITHIN, short_name=WITHIN, better="higher", unit="fraction", shown_as=ACCURACY
        )
        by_length = Metric(
            name=ACCURACY,
            short_name="algorithmic",
            better="higher",
            unit="fraction",
            axis=INPUT_LENGTH,
            xs=tuple(sorted(self.lengths)),
            mastery=WITHIN,
        )
        return [by_length, within]

    def problems(self) -> Iterable[Problem]:
        yield from super().problems()
        for shortest, longest in self.ranges():
            if problem := range_problem(self.definition, shortest, longest):
                yield Problem(("lengths",), problem)

    def tokenizer_problems(self, tokenizer: TokenizerRecipe) -> Iterable[Problem]:
        if problem := symbols_problem(self.definition, tokenizer):
            yield Problem(("subtask",), problem)

    def parent_problems(self, parent: StageConfig) -> Iterable[Problem]:
        """Another task than the trained one, and a first range that is not the trained one."""
        return self._training_problems(parent.data) if isinstance(parent, TrainingConfig) else []

    def _training_problems(self, data: Data) -> Iterable[Problem]:
        tasks = [source.task for source in data.mix if isinstance(source.task, AlgorithmicTask)]
        if not tasks:
            return
        same = [task.longest for task in tasks if task.subtask == self.subtask]
        first = min(self.lengths)
        if not same:
            trained = tasks[0].subtask
            yield Problem(
                ("subtask",), f"found {self.subtask}, and the model is trained on {trained}"
            )
        elif first not in same:
            message = f"found {first} as the end of the first range, and the model is trained on"
            yield Problem(("lengths",), f"{message} inputs of up to {same[0]} symbols")

    def run(self, context: Context) -> dict[str, Any]:
        """Log the share of right answers in each range, with Wilson's interval over strings. Raises
        DataError if the model has other symbols, or was trained on another task."""
        from fope_lab.evaluation.scoring.exact_match import exact_match

        data = context.training_data
        if problems := [] if data is None else list(self._training_problems(data)):
            raise DataError("; ".join(map(str, problems)))
        scoring = context.scoring(self.count * sum(self.lengths))
        for shortest, longest in self.ranges():
            asked = questions(self.definition, context.tokenizer, shortest, longest, self.count)
            right = exact_match(context.model, asked, **scoring.part(self.count, weight=longest))
            guessed = [
                self.definition.answer_symbols ** (1.0 - len(one.answer_ids)) for one in asked
            ]
            measured = Measurement(
                name=ACCURACY,
                x=longest,
                value=float(right.mean()),
                ci95=wilson_interval(int(right.sum()), self.count),
                n=self.count,
                chance=float(np.mean(guessed)),
            )
            context.log(measured)
            if shortest == 0:
                within = dataclasses.replace(measured, name=WITHIN, x=None)
                context.log(within, step=longest)
        return {}


class AlgorithmicQuestion(NamedTuple):
    """A string of tokens (length,), and its end: the answer and <eos>."""

    input_ids: NDArray[np.int64]
    answer_ids: NDArray[np.int64]


def questions(
    subtask: AlgorithmicSubtask, tokenizer: Tokenizer, shortest: int, longest: int, count: int
) -> list[AlgorithmicQuestion]:
    """Strings with inputs of `shortest` to `longest` symbols, which no training draws. They are the
    same for every model. Raises DataError for a tokenizer without the task's symbols."""
    name = ("algorithmic", subtask.name, "test")
    strings = subtask.draw(name, 0, count, shortest, longest)
    rows = Frame.of(subtask, tokenizer).rows(strings, subtask.tokens(longest))
    found = []
    for ids, labels, size in zip(*rows, strict=True):
        answer = int((labels != IGNORED).argmax())
        found.append(AlgorithmicQuestion(ids[:size], ids[answer:size]))
    return found
