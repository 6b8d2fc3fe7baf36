"""What an evaluation works with: the model, its tokenizer, texts, the store, and where it logs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.config.problems import did_you_mean
from fope_lab.config.processor import choose_device
from fope_lab.config.roles import MODEL, text_role
from fope_lab.data.packing import PackedCorpus, ShardedArray
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import Data, parse_data
from fope_lab.data.tokenizers.tokenizer import Prefix, Tokenizer, load_tokenizer
from fope_lab.evaluation.shared_work import SharedWork, Workers
from fope_lab.model import CheckpointConfig, load_model, read_config
from fope_lab.stages.internal import Select, SwapEmbedding
from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.store.folder import StageFolder
from fope_lab.store.lineage import lineage_of
from fope_lab.store.writer import durable_rows

if TYPE_CHECKING:
    from torch import nn

    from fope_lab.evaluation.base import Evaluation
    from fope_lab.store.writer import RunWriter


UNTRAINED_KINDS = (SwapEmbedding.kind, Select.kind)
"""The kinds of stages that leave a model which another stage has trained."""


class Scoring:
    """Options of the functions of `scoring`, for an evaluation of several parts, one after the
    other, which tells how far it is."""

    def __init__(self, context: Context, batch_tokens: int, total: int) -> None:
        self._context, self._total, self._before = context, total, 0
        self._batch_tokens = batch_tokens

    def part(self, items: int, weight: int = 1) -> dict[str, Any]:
        """The options of the next part, of `items` that count `weight` each."""
        before = self._before
        self._before += items * weight
        return {
            "batch_tokens": self._batch_tokens,
            "progress": lambda done: self._context.report_progress(
                before + done * weight, self._total
            ),
            "work": self._context.work,
        }


class Context:
    """One run of an evaluation."""

    def __init__(
        self,
        spec: Evaluation,
        writer: RunWriter,
        parents: Mapping[str, Path],
        workers: Workers | None = None,
    ) -> None:
        self._spec, self._writer, self._parents = spec, writer, parents
        self._workers, self._rows, self._first_done = workers or Workers(), 0, 0
        self._declared = {metric.name: metric for metric in spec.metrics()}
        self._measured: list[Measurement] = []
        self._numbers: dict[str, float] = {}
        self._heatmaps: list[Mapping[str, Any]] = []
        self._details: dict[str, Any] = {}

    @functools.cached_property
    def model_config(self) -> CheckpointConfig:
        """The model's sizes, tokenizer and trained length; loads no weights."""
        return read_config(self._parents[MODEL])

    @functools.cached_property
    def model(self) -> nn.Module:
        """The model in eval mode, on the device of choose_device, which may raise RuntimeError."""
        device = choose_device(self._spec.resources.gpus)
        return load_model(self._parents[MODEL]).to(device)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the model was trained with, which begins texts as the stage asks."""
        # An analysis has no such option.
        prefix: Prefix = getattr(self._spec, "prefix", "tokenizer")
        return load_tokenizer(self.model_config.tokenizer).begun_by(prefix)

    @functools.cached_property
    def work(self) -> SharedWork:
        """The results of batches, shared with other workers and kept for the next attempt."""
        return SharedWork(self._writer, self._workers)

    @functools.cached_property
    def _kept_rows(self) -> int:
        """How many of the first rows an earlier attempt has kept."""
        return len(durable_rows(self._writer.paths, None, self._writer.resumed_from))

    @property
    def training_data(self) -> Data | None:
        """The data of the training that left the model; None where that is not known. Stages that
        only chose the model, or gave it another embedding, are passed over."""
        model = lineage_of(StageFolder.of_checkpoint(self._parents[MODEL]))
        requests = [request for stage in model if (request := stage.request())]
        trainings = [each for each in requests if each.get("kind") not in UNTRAINED_KINDS]
        try:
            return parse_data(trainings[-1]["config"]["data"], self._parents[MODEL])
        except (LookupError, TypeError, DataError):
            return None

    @property
    def store(self) -> Path:
        return self._writer.paths.store

    def text(self, field: str, at_least: int, purpose: str, part: str = "all") -> ShardedArray:
        """The held-out part of the corpus in `field`, as the model's tokens (n,), or with `part`
        "second-half" the second half of it.

        Slices are read from disk. Raises DataError if there are fewer than `at_least` tokens, which
        `purpose` needs.
        """
        role = text_role(list(self._spec.corpora()).index(field))
        expected = {"tokenizer": self.tokenizer.identity(), "split": "validation"}
        packed = PackedCorpus(self._parents[role], expected)
        tokens = packed.tokens if part == "all" else packed.tokens.part(packed.middle, None)
        if len(tokens) < at_least:
            raise DataError(
                f"{purpose} needs {at_least:,} tokens, and the held-out text has {len(tokens):,}"
            )
        return tokens

    def report_progress(self, done: int, total: int) -> None:
        """Tell how far the run is, in any unit."""
        if not self.work.has_computed:  # all that is done so far, an earlier attempt has computed
            self._first_done = done
        self._writer.progress(done, total, first_step=self._first_done)

    def scoring(self, total: int) -> Scoring:
        return Scoring(self, self._spec.batch_tokens, total)  # type: ignore[attr-defined]

    def log(self, *measurements: Measurement, step: int | None = None) -> None:
        """Log measurements of one x as one row of metrics, and put them into the result. The row's
        step is their x, or `step` for single numbers (default 0). Raises ValueError for a metric or
        a point that the evaluation does not declare, and for several points at once."""
        for one in measurements:
            if one.name not in self._declared:
                kind, near = (
                    type(self._spec).__name__,
                    did_you_mean(one.name, sorted(self._declared)),
                )
                raise ValueError(f"{kind}.metrics() does not declare {one.name!r}{near}")
            points = self._declared[one.name].xs or (None,)
            if one.x not in points:
                declared = ", ".join(map(str, points))
                raise ValueError(f"{one.name} is measured at {one.x}, and declared at {declared}")
        xs = {one.x for one in measurements}
        if len(xs) != 1:
            found = ", ".join(map(str, xs)) or "none"
            raise ValueError(f"log takes the measurements of one point, found {found}")
        [x] = xs
        values = {name: value for one in measurements for name, value in one.row.items()}
        self._log_row(x if x is not None else step or 0, values)
        self._measured += measurements

    def log_numbers(self, numbers: Mapping[str, float]) -> None:
        """Log single numbers that are not metrics, as those beside the figure of an analysis."""
        if numbers:
            self._log_row(0, numbers)
        self._numbers |= numbers

    def _log_row(self, step: int, values: Mapping[str, float]) -> None:
        self._rows += 1
        if self._rows > self._kept_rows:
            self._writer.log(step, values)  # FolderWriter.log (store/writer.py)

    def keep(self, **details: Any) -> None:
        """Put values into the details of the result, by name; no report shows them."""
        self._details |= details

    def add_heatmap(self, heatmap: Mapping[str, Any]) -> None:
        """Have reports draw a heat map; stages/metric.py says what it holds."""
        self._heatmaps.append(heatmap)

    def record(self, recorded: Mapping[str, Any]) -> ResultRecord:
        return ResultRecord(
            metrics=tuple(self._measured),
            numbers=self._numbers,
            recorded=recorded,
            heatmaps=tuple(self._heatmaps),
            details=self._details,
        )

    def save(self, write: Callable[[Path], None]) -> None:
        """Have `write` fill a folder with files, which the stage keeps as its checkpoint."""
        self._writer.save_checkpoint(self.work.final_step, write)


def run(
    spec: Evaluation, writer: RunWriter, parents: Mapping[str, Path], workers: Workers | None = None
) -> dict[str, Any]:
    """Run an evaluation of the models in `parents`, and return the content of its result.json: the
    entry point of every evaluation, which its trial calls (orchestration/trial.py). All `workers`
    of a group call this and get the same numbers; only worker 0's writer writes."""
    context = Context(spec, writer, parents, workers)
    return context.record(spec.run(context)).as_json()
