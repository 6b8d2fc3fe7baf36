"""L-Eval's closed-ended tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Strict

from fope_lab.data.benchmarks import leval
from fope_lab.data.benchmarks.task_files import TaskFiles
from fope_lab.stages.benchmark import BenchmarkConfig, DatasetName, known_once
from fope_lab.stages.measure import Measure

Task = Annotated[str, Field(json_schema_extra={"enum": list(leval.TASKS)})]


class LEval(BenchmarkConfig):
    """Questions of long documents that have one right answer."""

    entry_point = "fope_lab.evaluation.leval:run"

    kind: Literal["leval"]
    dataset: DatasetName = leval.DATASET
    tasks: Annotated[
        tuple[Task, ...],
        Strict(False),
        Field(min_length=1),
        AfterValidator(known_once(leval.TASKS)),
    ] = leval.TABLE_2

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """L-Eval's."""
        return tuple(leval.TASKS)

    def measures(self) -> Iterable[Measure]:
        """The score of each task, and of several their average."""
        for task in self.tasks:
            yield Measure(task, f"leval_{task}")
        if len(self.tasks) > 1:
            yield Measure("leval", "leval_average")

    @property
    def files(self) -> TaskFiles:
        """L-Eval's."""
        return leval.task_files(self.dataset, self.revision)

    def file_names(self) -> list[str]:
        """One for each task."""
        return [leval.file_of(task) for task in self.tasks]

    def budget(self) -> tuple[str, int]:
        """The same for all."""
        return self.tasks[0], leval.MAX_NEW_TOKENS
