"""Our model behind lm-evaluation-harness's interface, and the harness's run over the tasks."""

from __future__ import annotations

import importlib.metadata
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets.exceptions import DatasetsError
from lm_eval.api.group import Group
from lm_eval.api.metrics import mean, stderr_for_metric
from lm_eval.api.model import LM
from lm_eval.api.task import ConfigurableTask
from lm_eval.config.group import GroupConfig
from lm_eval.evaluator import evaluate as run_harness
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.tasks._yaml_loader import load_yaml
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from fope_lab.data.problems import DataError
from fope_lab.evaluation.lm_eval import metric_name
from fope_lab.evaluation.lm_eval.tasks import (
    HarnessGroup,
    HarnessTask,
    Item,
    TaskMetric,
    all_tasks,
    with_local_data,
)
from fope_lab.evaluation.scoring.generating import answer
from fope_lab.evaluation.scoring.loglikelihood import score_continuations
from fope_lab.stages.metric import WORDS, Measurement

if TYPE_CHECKING:
    from fope_lab.evaluation.context import Context
    from fope_lab.evaluation.lm_eval import LMEval

BOOTSTRAPS = 1000
"""Resamples for the standard errors that the harness estimates by the bootstrap."""
FEWSHOT_SEED, RANDOM_SEED, NUMPY_SEED = 1234, 0, 1234  # the harness's own defaults


@dataclass(frozen=True)
class Outcome:
    """What the harness found: `results` by task or group, `samples` and `aggregations` by task."""

    results: Mapping[str, Mapping[str, Any]]
    samples: Mapping[str, Sequence[Mapping[str, Any]]]
    recorded: Mapping[str, Any]
    aggregations: Mapping[str, Mapping[str, Any]]
    ends: tuple[int, ...]
    """The upper ends of the ranges of words, ascending; empty if there are none."""

    def measured(self, name: str, metric: TaskMetric, x: int | None) -> Measurement | None:
        """A metric over all questions of a task or group, or over the questions in the range of
        words that ends at `x`; None if there are none.

        Raises DataError if the harness did not compute it, or if questions have no length.
        """
        return self._overall(name, metric) if x is None else self._in_range(name, metric, x)

    def _overall(self, name: str, metric: TaskMetric) -> Measurement:
        found = self.results[name]
        if metric.key not in found:
            measured = ", ".join(key for key in found if "," in key) or "none"
            raise DataError(f"{name} gave no {metric.key}; its metrics are {measured}")
        error = found.get(f"{metric.metric}_stderr,{metric.filter}")
        return Measurement(
            name=metric_name(name, metric),
            value=float(found[metric.key]),
            stderr=float(error) if isinstance(error, int | float) else None,
            n=found.get("sample_count", {}).get(metric.key, found.get("sample_len")),
        )

    def _in_range(self, name: str, metric: TaskMetric, x: int) -> Measurement | None:
        values = [
            sample[metric.metric]
            for sample in self.samples[name]
            if sample["filter"] == metric.filter and self._range(name, sample["doc"]) == x
        ]
        if not values:
            return None
        aggregate = self.aggregations[name].get(metric.metric, mean)
        error = stderr_for_metric(aggregate, BOOTSTRAPS) if len(values) > 1 else None
        return Measurement(
            name=f"{metric_name(name, metric)}_by_{WORDS.name}",
            x=x,
            value=float(aggregate(values)),
            stderr=None if error is None else float(error(values)),
            n=len(values),
        )

    def _range(self, task: str, question: Mapping[str, Any]) -> int:
        words = question.get("length")
        if not isinstance(words, int | float):
            raise DataError(
                f"by_words: the questions of {task} have no number of words in a field length "
                f"(they have: {', '.join(sorted(question))})"
            )
        return next((end for end in self.ends if words < end), self.ends[-1])


class HarnessModel(LM):
    """Answers the harness's requests with a model of ours.

    Contexts and answers together have at most `context_length` tokens; `cut` is what a longer
    context loses. Text is tokenized as the harness does it for models of Hugging Face: a context
    and its continuation together, after what the model expects before every text.
    """

    def __init__(
        self, context: Context, *, context_length: int, cut: str, batch_tokens: int
    ) -> None:
        super().__init__()
        self._context, self._tokenizer = context, context.tokenizer
        self._length, self._cut = context_length, cut
        self._batch_tokens = batch_tokens
        self._done = self._total = 0
        self.prompts_cut = self.tokens_left_out = 0

    @property
    def tokenizer_name(self) -> str:
        return str(self._tokenizer.identity())

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """A chat as text, up to where the assistant begins to speak."""
        return self._tokenizer.write_chat(chat_history, add_generation_prompt)

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """The log-probability in nats of each continuation, and whether it is the greedy one."""
        pairs = [self._pair(*request.args) for request in requests]
        return [(one.logprob, one.greedy) for one in self._scores(pairs)]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """The log-probability in nats of each text, each token with as much context as fits."""
        windows = [
            [
                make_disjoint_window(window)
                for window in get_rolling_token_windows(
                    token_list=self._tokenizer.encode(request.args[0]),
                    prefix_token=self._first[-1],
                    max_seq_len=self._length,
                    context_len=1,
                )
            ]
            for request in requests
        ]
        scores = iter(self._scores([pair for text in windows for pair in text]))
        return [sum(next(scores).logprob for _ in text) for text in windows]

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """What the model writes greedily after each context, up to a stop text or the budget."""
        progress = self._progress(len(requests))
        settings = [normalize_gen_kwargs(request.args[1]) for request in requests]

        def setting(place: int) -> tuple[int, tuple[str, ...]]:
            return settings[place]["max_gen_toks"], tuple(settings[place]["until"])

        texts: dict[int, str] = {}
        for (budget, until), alike in groupby(sorted(range(len(requests)), key=setting), setting):
            places, before = list(alike), len(texts)
            room = self._length - budget
            if room < 1:
                raise DataError(
                    f"context_length: found {self._length}, needs more than the {budget} tokens "
                    "that an answer may have"
                )
            answers = answer(
                self._context.model,
                self._tokenizer,
                [np.array(self._fitted(self._ids(requests[i].args[0]), room)) for i in places],
                max_new_tokens=budget,
                until=until,
                batch_tokens=self._batch_tokens,
                progress=lambda done, before=before: progress(before + done),  # type: ignore[misc]
                work=self._context.work,
            )
            texts |= {place: one.text for place, one in zip(places, answers, strict=True)}
        return [texts[place] for place in range(len(requests))]

    @property
    def _first(self) -> tuple[int, ...]:
        """What a text is conditioned on that has nothing before it."""
        return tuple(self._tokenizer.prefix_ids) or (self._tokenizer.eos_id,)

    def _ids(self, text: str) -> list[int]:
        """A text's tokens after what the model expects before every text, but not twice."""
        ids, prefix = self._tokenizer.encode(text), list(self._tokenizer.prefix_ids)
        return ids if prefix and ids[: len(prefix)] == prefix else [*prefix, *ids]

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """The tokens of a context and of its continuation, to which spaces between them belong."""
        if context == "":
            before, after = list(self._first), self._tokenizer.encode(continuation)
        else:
            stripped = context.rstrip()
            continuation = context[len(stripped) :] + continuation
            before = self._ids(stripped) or list(self._first)
            after = self._ids(stripped + continuation)[len(before) :]
        room = self._length + 1 - len(after)  # the last token is predicted and not read
        if room < 1:
            raise DataError(
                f"a continuation of {len(after)} tokens leaves no room for its context in "
                f"context_length {self._length}"
            )
        return self._fitted(before, room), after

    def _fitted(self, ids: list[int], room: int) -> list[int]:
        if len(ids) <= room:
            return ids
        self.prompts_cut += 1
        self.tokens_left_out += len(ids) - room
        tail = room if self._cut == "beginning" else room // 2
        return [*ids[: room - tail], *ids[len(ids) - tail :]]

    def _scores(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[Any]:
        return score_continuations(
            self._context.model,
            pairs,
            batch_tokens=self._batch_tokens,
            progress=self._progress(len(pairs)),
            work=self._context.work,
        )

    def _progress(self, requests: int) -> Any:
        before = self._total
        self._total += requests
        return lambda done: self._context.report_progress(before + done, self._total)


def evaluate(stage: LMEval, context: Context) -> Outcome:
    """Have the harness ask the model all questions of a stage. Raises DataError if a task's data or
    packages are missing, or if a prompt can't be cut to fit."""
    context_length = stage.context_length or context.model_config.context_length
    model = HarnessModel(
        context, context_length=context_length, cut=stage.cut, batch_tokens=stage.batch_tokens
    )
    random.seed(RANDOM_SEED)
    np.random.seed(NUMPY_SEED)
    tasks = {task.name: _task(task, stage.num_fewshot) for task in all_tasks(stage.items)}
    groups: dict[str, Group] = {}
    for item in stage.items:
        _add_groups(item, tasks, groups)
    # Else the harness starts a process on each core for the bootstrap.
    os.environ["DISABLE_MULTIPROC"] = "1"
    found = run_harness(
        lm=model,
        task_dict={"tasks": tasks, "groups": groups},
        limit=stage.limit,
        bootstrap_iters=BOOTSTRAPS,
        log_samples=True,
        apply_chat_template=stage.format == "chat",
    )
    recorded = {
        "lm_eval": importlib.metadata.version("lm_eval"),
        "tasks": stage.identities,
        "questions": {
            name: {"asked": count["effective"], "of": count["original"]}
            for name, count in found["n-samples"].items()
        },
        "num_fewshot": {name: found["n-shot"][name] for name in tasks},
        "context_length": context_length,
        "format": stage.format,
        "cut": stage.cut,
        "prompts_cut": model.prompts_cut,
        "tokens_left_out": model.tokens_left_out,
    }
    aggregations = {name: task.aggregation() for name, task in tasks.items()}
    ends = tuple(sorted(stage.by_words or ()))
    return Outcome(found["results"], found["samples"], recorded, aggregations, ends)


def _task(task: HarnessTask, num_fewshot: int | None) -> ConfigurableTask:
    """The harness's own object of a task, with the number of solved examples. A task that says 0
    itself keeps it, as in the harness. Raises DataError if its data can't be read or its functions
    can't be imported."""
    try:
        config = {**load_yaml(task.path, resolve_func=True), **task.overrides, "task": task.name}
        for name in ("tag", "group", "task_list"):
            config.pop(name, None)
        built = ConfigurableTask(config=with_local_data(task.path, config))
        if not len(built.eval_docs):
            raise DataError(f"the task {task.name} has no questions")
    except DatasetsError as error:
        why = error.__cause__ or error  # whose own text says only that there is one
        raise DataError(f"the task {task.name} can't be loaded: {why}") from error
    except (OSError, ImportError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"the task {task.name} can't be loaded: {error}") from error
    own = built.get_config("num_fewshot")
    if own is None or (num_fewshot is not None and own != 0):
        built.set_config(key="num_fewshot", value=num_fewshot or 0)
    built.set_fewshot_seed(seed=FEWSHOT_SEED)
    return built


def _add_groups(item: Item, tasks: Mapping[str, ConfigurableTask], groups: dict[str, Group]) -> Any:
    """The harness's own object of a task or a group, with all groups added to `groups`."""
    if not isinstance(item, HarnessGroup):
        return tasks[item.name]
    config = {
        name: value
        for name, value in item.config.items()
        if name in ("group_alias", "aggregate_metric_list", "metadata")
    }
    group = groups[item.name] = Group.from_config(GroupConfig(group=item.name, **config))
    for member in item.members:
        group.add(_add_groups(member, tasks, groups))
    return group
