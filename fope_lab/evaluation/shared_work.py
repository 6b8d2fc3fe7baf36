"""The batches of an evaluation, shared out among its workers and kept for the next attempt.

The workers compute the batches in rounds, one each, and exchange the results after every round, so
all of them know the results of the same first batches. Now and then worker 0 saves these as the
stage's checkpoint. An attempt that resumes from it, with any number of workers, runs the evaluation
from its start, but takes the results of those batches from the checkpoint. Each batch is the same
batch whoever computes it, so the numbers are those of one worker that was never interrupted.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.evaluation.scoring.batches import Batch, Result
from fope_lab.store.lease import StageStoppedError

if TYPE_CHECKING:
    from fope_lab.store.writer import RunWriter

RESULTS, LISTS = "results.npz", "lists.json"
SAVE_SECONDS = 60.0
"""How long an attempt works before it saves its results so far. Shorter ones save nothing."""
SAVING_SHARE = 0.05
"""The most of the time that saving may take: it is rarer if writing is slow."""


class Workers:
    """The processes that do an evaluation together: only this one. Larger groups are like
    trainers/workers.py's."""

    rank, size = 0, 1

    def gather(self, value: Any) -> list[Any]:
        """The values of all workers, by their ranks. All must call this."""
        return [value]


class SharedWork:
    """A `Work` (scoring/batches.py) of one attempt; every worker has one."""

    def __init__(self, writer: RunWriter, workers: Workers) -> None:
        self._writer, self._workers = writer, workers
        resumed = writer.resumed_from
        self._saved = [] if resumed is None else read_results(resumed.path)
        """The lists of batches that an earlier attempt has worked on, the last one partly."""
        self._lists: list[tuple[str, list[Result]]] = []
        self._saved_at, self._saving_seconds = time.monotonic(), 0.0
        self._step = 0 if resumed is None else resumed.step
        self._has_new = self.has_computed = False

    def __call__(
        self,
        batches: Sequence[Batch],
        compute: Callable[[Batch], Result],
        skip: Callable[[Batch, Result | None], None] = lambda batch, result: None,
        *,
        divisible: bool = True,
    ) -> Iterator[Result]:
        """Yield the result of each of `batches`; see `Work`. Raises StageStoppedError, once the
        results so far are saved, if the driver asks the stage to stop."""
        digest = hashlib.sha256(repr(batches).encode()).hexdigest()
        results = self._take(digest, len(batches))
        self._lists.append((digest, results))
        for batch, result in zip(batches, results, strict=False):
            skip(batch, result)
        yield from list(results)
        size = self._workers.size if divisible else 1
        own = self._workers.rank if divisible else 0
        for first in range(len(results), len(batches), size):
            computed = None
            for place, batch in enumerate(batches[first : first + size]):
                if place == own:
                    computed = compute(batch)
                else:
                    skip(batch, None)
            found, stop = self._exchange(computed)
            new = found[: len(batches) - first] if divisible else found[:1]
            results += new
            self._has_new = self.has_computed = True
            self._save_if_due(stop)
            yield from new

    @property
    def final_step(self) -> int:
        """The step of what the evaluation itself saves in the end, after all that is saved here."""
        return self._step + 1 if self._step else 0

    def _exchange(self, computed: Result | None) -> tuple[list[Any], bool]:
        gathered = self._workers.gather((computed, self._writer.is_stop_asked()))
        return [result for result, _ in gathered], gathered[0][1]

    def _take(self, digest: str, count: int) -> list[Result]:
        """The results of the next list that an earlier attempt has, of the very same batches."""
        place = len(self._lists)
        if place < len(self._saved) and self._saved[place][0] == digest:
            return list(self._saved[place][1][:count])
        del self._saved[place:]
        return []

    def _save_if_due(self, stop: bool) -> None:
        patience = max(SAVE_SECONDS, self._saving_seconds / SAVING_SHARE)
        started = time.monotonic()
        if self._has_new and (stop or started - self._saved_at >= patience):
            self._step = max(self._step + 1, sum(len(results) for _, results in self._lists))
            self._writer.save_checkpoint(
                self._step, lambda folder: write_results(folder, self._lists), partial=True
            )
            self._saved_at = time.monotonic()
            self._saving_seconds, self._has_new = self._saved_at - started, False
        if stop:
            self._writer.note("asked to stop; the results of all batches so far are saved")
            raise StageStoppedError("stopped between two batches")


def write_results(directory: Path, lists: Sequence[tuple[str, Sequence[Result]]]) -> None:
    """Save the results of lists of batches, each with the digest of its batches."""
    arrays = {}
    for place, (_, results) in enumerate(lists):
        for column, values in enumerate(zip(*results, strict=True)):
            name = f"{place}.{column}"
            arrays[name] = np.concatenate([value.ravel() for value in values])
            shapes = np.array([value.shape for value in values], np.int64)
            arrays[f"{name}.shapes"] = shapes.reshape(len(values), values[0].ndim)
    with (directory / RESULTS).open("wb") as file:  # so that a full disk raises an OSError
        np.savez(file, allow_pickle=False, **arrays)
    text = json.dumps([digest for digest, _ in lists])
    (directory / LISTS).write_text(text, encoding="utf-8")


def read_results(directory: Path) -> list[tuple[str, list[Result]]]:
    """What `write_results` saved in `directory`; nothing if it saved nothing there."""
    if not (directory / LISTS).exists():
        return []  # an evaluation that was killed after it had saved its own files
    digests = json.loads((directory / LISTS).read_text(encoding="utf-8"))
    lists = []
    with np.load(directory / RESULTS, allow_pickle=False) as arrays:
        for place, digest in enumerate(digests):
            columns: list[list[NDArray[Any]]] = []
            while (name := f"{place}.{len(columns)}") in arrays:
                shapes, flat = arrays[f"{name}.shapes"], arrays[name]
                ends = np.cumsum(shapes.prod(axis=1, dtype=np.int64))
                pieces = np.split(flat, ends[:-1])
                columns.append([p.reshape(s) for p, s in zip(pieces, shapes, strict=True)])
            lists.append((digest, list(zip(*columns, strict=True))))
    return lists
