"""Tasks of lm-evaluation-harness, which asks our model through its own interface.

The harness writes the prompts and scores the answers (https://github.com/EleutherAI/lm-evaluation-
harness); model.py computes log-probabilities and answers as all our evaluations do. Validating a
sweep reads the tasks' YAML files (tasks.py) and imports neither the harness nor torch.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import MinLen

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import EachOnce, Parsed
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import ConfigError, Problem, collecting
from fope_lab.data.problems import DataError
from fope_lab.evaluation.base import PromptedEvaluation
from fope_lab.evaluation.lm_eval.tasks import (
    FRACTIONS,
    HarnessTask,
    Item,
    TaskFinder,
    TaskMetric,
    all_groups,
    all_tasks,
    missing_harness,
)
from fope_lab.stages.metric import WORDS, Metric

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context

ANSWERS = "answers.jsonl"
"""The file with a line for each question and filter: what was answered, and its scores."""


def _parse_folder(value: Any, base: Path) -> str:
    """An existing folder, made absolute."""
    if not isinstance(value, str) or not value:
        raise ConfigError(Problem((), f"found {value!r}", "the path of a folder"))
    folder = Path(os.path.abspath(base / Path(value).expanduser()))
    if not folder.is_dir():
        raise ConfigError(Problem((), f"found no folder {folder}"))
    return str(folder)


@dataclass(frozen=True, kw_only=True)
class LMEval(PromptedEvaluation, kind="lm-eval"):
    """Any tasks of lm-evaluation-harness, with a metric for each task, metric and filter."""

    tasks: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        MinLen(1),
        EachOnce(),
        Doc("Names of tasks, groups and tags, as `lm_eval ls tasks` lists them."),
    ]
    num_fewshot: Annotated[
        Annotated[int, Interval(ge=0)] | None,
        Doc("The number of solved examples before a question; the default is each task's own."),
    ] = None
    limit: Annotated[
        PositiveInt | None, Doc("The most questions of each task; the default is all.")
    ] = None
    include_path: Annotated[
        Annotated[str, Parsed(_parse_folder, lambda: {"type": "string", "minLength": 1})] | None,
        Doc(
            "A folder with task files of your own, in the harness's format. Their data files may be"
            " relative to them. The key has their content."
        ),
    ] = None
    cut: Annotated[
        Literal["beginning", "middle"],
        Doc(
            "What a prompt loses that is too long: its beginning, as in the harness, or its"
            " middle, as in LongBench."
        ),
    ] = "beginning"
    by_words: Annotated[
        Annotated[tuple[PositiveInt, ...], MinLen(1), EachOnce()] | None,
        Doc(
            "Upper ends of ranges of words, by the field `length` that LongBench's questions have:"
            " every metric is then a curve over them. Longer questions are in the last range."
        ),
    ] = None

    @functools.cached_property
    def items(self) -> list[Item]:
        """The tasks and groups. Raises ConfigError for an unknown name or a wrong file."""
        if message := missing_harness():
            raise ConfigError(message)
        folder = None if self.include_path is None else Path(self.include_path)
        finder, items = TaskFinder(folder), []
        problems: list[Problem] = []
        for place, name in enumerate(self.tasks):
            with collecting(problems, at=("tasks", place)):
                items += finder.find(name)
        if problems:
            raise ConfigError(problems)
        return items

    def metrics(self) -> Iterable[Metric]:
        """Every metric of every task and group through every filter; claims call the first one of a
        task by the task's name."""
        curve = self.by_words is not None
        for item in self._measured():
            for place, one in enumerate(item.metrics):
                name = metric_name(item.name, one)
                yield Metric(
                    name=f"{name}_by_{WORDS.name}" if curve else name,
                    short_name=name if place else _word(item.name),
                    better="higher" if one.higher_is_better else "lower",
                    unit="fraction" if one.metric in FRACTIONS else "number",
                    axis=WORDS if curve else None,
                    xs=tuple(sorted(self.by_words)) if self.by_words else None,
                )

    def _measured(self) -> list[Item]:
        """The tasks, and the groups where they have a single number."""
        groups = all_groups(self.items) if self.by_words is None else ()
        return [*all_tasks(self.items), *groups]

    @functools.cached_property
    def identities(self) -> dict[str, Any]:
        """What every task and group was when the stage was planned. Raises ConfigError."""
        return {item.name: item.identity() for item in self.items}

    def key_replacements(self) -> Mapping[str, Any]:
        """The version and the data of every task; the content of task files of one's own."""
        try:
            return {"tasks": self.identities, "include_path": None}
        except ConfigError as error:
            raise DataError(error.problems) from error

    def problems(self) -> Iterable[Problem]:
        """A harness that is not installed, wrong tasks, and a context without room."""
        yield from super().problems()
        found: list[Problem] = []
        with collecting(found):
            yield from self._task_problems(list(all_tasks(self.items)))
        yield from found

    def _task_problems(self, tasks: Sequence[HarnessTask]) -> Iterable[Problem]:
        seen = set()
        for task in tasks:
            if why := task.unusable():
                yield Problem(("tasks",), f"the task {task.name} {why}: no stage can run it")
            if task.name in seen:
                yield Problem(("tasks",), f"{task.name} is twice among the tasks and groups")
            seen.add(task.name)
        longest = max(tasks, key=lambda task: task.answer_tokens)
        budget = longest.answer_tokens
        if self.context_length is not None and self.context_length <= budget:
            needs = f"more than the {budget} tokens that an answer of {longest.name} may have"
            yield Problem(("context_length",), f"found {self.context_length}", needs)

    def run(self, context: Context) -> dict[str, Any]:
        """Log the metrics of every task and group; keep what was answered to every question."""
        from fope_lab.evaluation.lm_eval.model import evaluate

        for item in self.items:
            if item.identity() != self.identities[item.name]:
                raise DataError(
                    f"the files of {item.name} hold something else here than where and when the "
                    "sweep was planned; run the sweep again to plan with them"
                )
        outcome = evaluate(self, context)
        for x in (None,) if self.by_words is None else sorted(self.by_words):
            found = [
                measured
                for item in self._measured()
                for one in item.metrics
                if (measured := outcome.measured(item.name, one, x)) is not None
            ]
            if found:
                context.log(*found)
        context.save(lambda folder: _write_answers(folder / ANSWERS, outcome.samples))
        context.keep(tasks=outcome.results)
        return dict(outcome.recorded)


def metric_name(task: str, one: TaskMetric) -> str:
    """TASK_METRIC, and _FILTER if the task has filters."""
    through = () if one.filter == "none" else (one.filter,)
    return _word("_".join((task, one.metric, *through)))


def _word(text: str) -> str:
    """One word that claims and MLflow can name."""
    return re.sub(r"\W+", "_", text)


def _write_answers(path: Path, samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for task, asked in samples.items():
            for one in asked:
                scores = {name: one[name] for name in one["metrics"]}
                line = {"task": task, "question": one["doc_id"], "filter": one["filter"]}
                line |= {"answers": one["filtered_resps"], "scores": scores}
                file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
