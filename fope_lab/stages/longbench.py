"""LongBench-E by the length of its questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Strict

from fope_lab.data.benchmarks import longbench
from fope_lab.data.benchmarks.task_files import TaskFiles
from fope_lab.stages.benchmark import BenchmarkConfig, DatasetName, known_once
from fope_lab.stages.measure import Measure

Task = Annotated[str, Field(json_schema_extra={"enum": list(longbench.TASKS)})]


class LongBench(BenchmarkConfig):
    """Summaries, classes and short answers, scored as published, by the length of the question."""

    entry_point = "fope_lab.evaluation.longbench:run"

    kind: Literal["longbench"]
    dataset: DatasetName = longbench.DATASET
    tasks: Annotated[
        tuple[Task, ...],
        Strict(False),
        Field(min_length=1),
        AfterValidator(known_once(longbench.TASKS)),
    ] = tuple(longbench.TASKS)
    rouge: Annotated[
        Literal["rouge-score", "rouge"],
        Field(description="the package whose Rouge-L counts; published numbers have that of rouge"),
    ] = "rouge-score"

    @classmethod
    def task_names(cls) -> Sequence[str]:
        """LongBench-E's."""
        return tuple(longbench.TASKS)

    def measures(self) -> Iterable[Measure]:
        """The score of each task and their average, in each bucket of lengths in words."""
        steps = tuple(bucket.step for bucket in longbench.BUCKETS)
        for task in self.tasks:
            yield Measure(task, f"longbench_{task}_by_words", steps)
        yield Measure("longbench", "longbench_average_by_words", steps)

    @property
    def files(self) -> TaskFiles:
        """LongBench-E's."""
        return longbench.task_files(self.dataset, self.revision)

    def file_names(self) -> list[str]:
        """One for each task."""
        return [longbench.file_of(task) for task in self.tasks]

    def budget(self) -> tuple[str, int]:
        """That of the summaries, if there are some."""
        budgets = {task: longbench.TASKS[task].max_new_tokens for task in self.tasks}
        return max(budgets.items(), key=lambda one: one[1])
