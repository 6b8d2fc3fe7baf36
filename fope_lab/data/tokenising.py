"""Tokenises documents in one process or several; the tokens don't depend on the number.

The stage's own process reads the documents in order, passes batches of them to the workers, and
collects the answers in the same order. A worker is a fresh Python process: it shares nothing that
the stage has loaded, and uses neither a GPU nor torch. It ends when its connection to the stage
closes, so it ends with the stage, even if the stage crashes.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.corpora.base import TokenPiece, characters
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import Tokenizer

BATCH_CHARACTERS = 1 << 20
BATCH_DOCUMENTS = 1024
AHEAD = 2
"""Batches per worker that may be read ahead of the writer; the limit bounds memory."""
THREADS = "TOKENIZERS_PARALLELISM"
"""The variable that lets the package tokenizers use every processor; here a process uses one."""
SERVE = "import sys; from fope_lab.data.tokenising import serve; serve(int(sys.argv[1]))"


@dataclass(frozen=True)
class Encoded:
    """Concatenated documents: `tokens` (tokens,), `loss` (tokens,), and `starts` (documents,), the
    places of their first tokens.

    `loss` is 1 for tokens that count in the loss and 0 for the others; None means that all count.
    """

    tokens: NDArray[np.int64]
    starts: NDArray[np.int64]
    loss: NDArray[np.uint8] | None


def encoded(kind: str, tokenizer: Tokenizer, documents: Sequence[Any]) -> Encoded:
    """Encode documents of a kind.

    Texts and pairs are followed by an end-of-text token, which counts in the loss as the answers
    do; of chats, which the tokenizer's own template writes, the assistant's turns count.
    """
    loss: list[list[int]] | None = None
    if kind == "chats":
        chats = tokenizer.encode_chats(documents)
        ids, loss = [ids for ids, _ in chats], [learnt for _, learnt in chats]
    elif kind == "pairs":
        parts = iter(tokenizer.encode_batch([part for pair in documents for part in pair]))
        ids, loss = [], []
        for prompt, answer in zip(parts, parts, strict=True):
            ids.append([*prompt, *answer, tokenizer.eos_id])
            loss.append([0] * len(prompt) + [1] * (len(answer) + 1))
    else:
        ids = [[*text, tokenizer.eos_id] for text in tokenizer.encode_batch(documents)]
    sizes = np.array([len(document) for document in ids], np.int64)
    total = int(sizes.sum())
    return Encoded(
        np.fromiter(chain.from_iterable(ids), np.int64, total),
        np.cumsum(sizes) - sizes,
        None if loss is None else np.fromiter(chain.from_iterable(loss), np.uint8, total),
    )


def tokenised(
    documents: Iterable[Any], kind: str, tokenizer: Tokenizer, processes: int = 1
) -> Generator[Encoded, None, None]:
    """Yield the tokens of documents of a kind, a batch of documents at a time, in order.

    One process is the calling one, which alone reads what is tokens already. Closing the generator
    ends the workers. Raises what the tokenizer raises, and DataError if a worker ends early.
    """
    if kind == "tokens":
        return _marked(documents, tokenizer)
    encode = _in_this_process if processes == 1 else _in_processes
    return encode(_batches(documents), kind, tokenizer, processes)


def _marked(pieces: Iterable[TokenPiece], tokenizer: Tokenizer) -> Generator[Encoded, None, None]:
    """Yield tokens with the places where documents begin: at a whole piece, after an end-of-text
    token, and at a beginning-of-text token, which is taken off. Raises DataError for an id that the
    tokenizer does not have."""
    prefix = np.array(tokenizer.prefix_ids, np.int64)
    mark = prefix if len(prefix) == 1 and prefix[0] != tokenizer.eos_id else prefix[:0]
    begins = True
    for piece in pieces:
        ids = piece.ids.astype(np.int64)
        piece.check(tokenizer.tokens)
        if piece.whole:
            ids = ids[len(prefix) :] if np.array_equal(ids[: len(prefix)], prefix) else ids
            ended = len(ids) > 0 and ids[-1] == tokenizer.eos_id
            ids = ids if ended else np.append(ids, tokenizer.eos_id)
            yield Encoded(ids, np.zeros(1, np.int64), None)
        elif len(ids):
            kept = ~np.isin(ids, mark)
            borders = np.append(begins or piece.begins, (ids[:-1] == tokenizer.eos_id) | ~kept[:-1])
            begins = bool(ids[-1] == tokenizer.eos_id or not kept[-1])
            yield Encoded(ids[kept], np.flatnonzero(borders[kept]), None)


def serve(descriptor: int) -> None:
    """Run a worker: answer batches of documents until the stage closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the stage handles Ctrl-C and ends its workers
    connection = Connection(descriptor)
    try:
        kind, tokenizer = connection.recv()
        while True:
            batch = connection.recv()
            try:
                answer: Encoded | Exception = encoded(kind, tokenizer, batch)
            except Exception as error:
                answer = error
            connection.send(answer)
    except (EOFError, ConnectionError):
        return


class _Worker:
    """The stage's handle on a process that runs `serve`."""

    def __init__(self, kind: str, tokenizer: Tokenizer) -> None:
        self._connection, theirs = Pipe()
        environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            THREADS: "false",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(theirs.fileno())],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()  # so that the connection closes when the process ends
        self._first: Any = (kind, tokenizer)

    def encode(self, batch: Sequence[Any]) -> Encoded:
        try:
            if self._first is not None:
                self._connection.send(self._first)
                self._first = None
            self._connection.send(batch)
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            status = self._process.wait()
            raise DataError(
                f"a tokenising process ended with exit status {status}; if it ran out of memory, "
                "lower prepare.resources.cpus"
            ) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()


def _in_this_process(
    batches: Iterator[list[Any]], kind: str, tokenizer: Tokenizer, _: int
) -> Generator[Encoded, None, None]:
    before = os.environ.get(THREADS)
    os.environ[THREADS] = "false"
    try:
        yield from (encoded(kind, tokenizer, batch) for batch in batches)
    finally:
        del os.environ[THREADS]
        if before is not None:
            os.environ[THREADS] = before


def _in_processes(
    batches: Iterator[list[Any]], kind: str, tokenizer: Tokenizer, processes: int
) -> Generator[Encoded, None, None]:
    workers = [_Worker(kind, tokenizer) for _ in range(processes)]
    free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    for worker in workers:
        free.put(worker)
    # Threads, because sending a message longer than a pipe's buffer blocks until it is read.
    threads = ThreadPoolExecutor(processes)

    def encode(batch: list[Any]) -> Encoded:
        worker = free.get()
        try:
            return worker.encode(batch)
        finally:
            free.put(worker)

    pending: deque[Future[Encoded]] = deque()
    try:
        for batch in batches:
            pending.append(threads.submit(encode, batch))
            if len(pending) > AHEAD * processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for worker in workers:
            worker.stop()
        threads.shutdown(cancel_futures=True)


def _batches(documents: Iterable[Any]) -> Iterator[list[Any]]:
    """Lists of at most BATCH_DOCUMENTS documents with about BATCH_CHARACTERS in total."""
    batch: list[Any] = []
    total = 0
    for document in documents:
        batch.append(document)
        total += characters(document)
        if total >= BATCH_CHARACTERS or len(batch) >= BATCH_DOCUMENTS:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
