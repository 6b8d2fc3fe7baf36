"""Documents to tokens, in one process or several; the tokens are the same for any number of them.

The stage's own process reads the documents in their order and hands batches of them to the workers,
whose answers it takes in the same order. A worker is a fresh Python process: nothing that the stage
has loaded is in it, and neither a GPU nor torch. It ends when the stage does, however that ends,
because its connection then does.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import Tokenizer

BATCH_CHARACTERS = 1 << 20
BATCH_DOCUMENTS = 1024
AHEAD = 2
"""Batches of each worker that are read but not written yet: with this, memory is bounded."""
THREADS = "TOKENIZERS_PARALLELISM"
"""Whether the package tokenizers takes every processor there is: a process is to take one."""
SERVE = "import sys; from fope_lab.data.tokenising import serve; serve(int(sys.argv[1]))"


@dataclass(frozen=True)
class Encoded:
    """Documents one after the other: `tokens` and `loss` (tokens,), `sizes` (documents,) in tokens.

    `loss` is 1 where a token is to be learnt and 0 elsewhere; None means everywhere.
    """

    tokens: NDArray[np.int64]
    sizes: NDArray[np.int64]
    loss: NDArray[np.uint8] | None


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> Encoded:
    """Texts, each with an end-of-text token after it."""
    ids = [[*one, tokenizer.eos_id] for one in tokenizer.encode_batch(texts)]
    return _encoded(ids, None)


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> Encoded:
    """Prompt, answer and an end-of-text token; to be learnt are the answer and its end."""
    parts = iter(tokenizer.encode_batch([part for pair in pairs for part in pair]))
    ids, loss = [], []
    for prompt, answer in zip(parts, parts, strict=True):
        ids.append([*prompt, *answer, tokenizer.eos_id])
        loss.append([0] * len(prompt) + [1] * (len(answer) + 1))
    return _encoded(ids, loss)


def encode_chats(tokenizer: Tokenizer, chats: Sequence[Sequence[Mapping[str, str]]]) -> Encoded:
    """Chats as the tokenizer's own template writes them; to be learnt are the assistant's turns."""
    ids, loss = [], []
    for tokens, learnt in tokenizer.encode_chats(chats):
        ids.append(tokens)
        loss.append(learnt)
    return _encoded(ids, loss)


ENCODERS: Mapping[str, Callable[[Tokenizer, Sequence[Any]], Encoded]] = {
    "text": encode_texts,
    "pairs": encode_pairs,
    "chats": encode_chats,
}
"""By the kind of the corpus."""


def tokenised(
    documents: Iterable[Any], kind: str, tokenizer: Tokenizer, processes: int = 1
) -> Generator[Encoded, None, None]:
    """The tokens of documents of a kind, some documents at a time, in their order.

    With one process, it is this one; to close the generator ends the others. Raises what the
    tokenizer raises, and DataError if a worker ends before its work is done.
    """
    batches = _batches(documents)
    if processes == 1:
        return _in_this_process(batches, kind, tokenizer)
    return _in_processes(batches, kind, tokenizer, processes)


def serve(descriptor: int) -> None:
    """What a worker does: answer batches of documents until there is nobody to ask for any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the stage, which then ends us
    connection = Connection(descriptor)
    try:
        kind, tokenizer = connection.recv()
        while True:
            batch = connection.recv()
            try:
                answer: Encoded | Exception = ENCODERS[kind](tokenizer, batch)
            except Exception as error:
                answer = error
            connection.send(answer)
    except (EOFError, ConnectionError):
        return


class _Worker:
    """A process that runs `serve`, seen from the stage."""

    def __init__(self) -> None:
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
        theirs.close()  # so that the end of the process is the end of the connection

    def begin(self, kind: str, tokenizer: Tokenizer) -> None:
        """Tell it what to do."""
        self._ask((kind, tokenizer), answered=False)

    def encode(self, batch: Sequence[Any]) -> Encoded:
        """Its answer to a batch of documents. Raises what it raised."""
        answer = self._ask(batch, answered=True)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stop(self) -> None:
        """End it, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _ask(self, message: Any, answered: bool) -> Any:
        try:
            self._connection.send(message)
            return self._connection.recv() if answered else None
        except (EOFError, OSError) as error:
            status = self._process.wait()
            raise DataError(
                f"a process that tokenises ended with exit status {status}; if it was killed for "
                "lack of memory, lower prepare.resources.cpus"
            ) from error


def _in_this_process(
    batches: Iterator[list[Any]], kind: str, tokenizer: Tokenizer
) -> Generator[Encoded, None, None]:
    before = os.environ.get(THREADS)
    os.environ[THREADS] = "false"
    try:
        yield from (ENCODERS[kind](tokenizer, batch) for batch in batches)
    finally:
        del os.environ[THREADS]
        if before is not None:
            os.environ[THREADS] = before


def _in_processes(
    batches: Iterator[list[Any]], kind: str, tokenizer: Tokenizer, processes: int
) -> Generator[Encoded, None, None]:
    workers = [_Worker() for _ in range(processes)]
    free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    # Threads, because a message that is longer than a pipe's buffer waits for its reader.
    threads = ThreadPoolExecutor(processes)

    def encode(batch: list[Any]) -> Encoded:
        worker = free.get()
        try:
            return worker.encode(batch)
        finally:
            free.put(worker)

    pending: deque[Future[Encoded]] = deque()
    try:
        for worker in workers:
            worker.begin(kind, tokenizer)
            free.put(worker)
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


def _encoded(ids: Sequence[Sequence[int]], loss: Sequence[Sequence[int]] | None) -> Encoded:
    sizes = np.array([len(one) for one in ids], np.int64)
    total = int(sizes.sum())
    return Encoded(
        np.fromiter(chain.from_iterable(ids), np.int64, total),
        sizes,
        None if loss is None else np.fromiter(chain.from_iterable(loss), np.uint8, total),
    )


def _batches(documents: Iterable[Any]) -> Iterator[list[Any]]:
    """Lists of documents of about BATCH_CHARACTERS together."""
    batch: list[Any] = []
    total = 0
    for document in documents:
        batch.append(document)
        total += _characters(document)
        if total >= BATCH_CHARACTERS or len(batch) >= BATCH_DOCUMENTS:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def _characters(document: Any) -> int:
    """The size of a text, of a pair, or of a chat."""
    if isinstance(document, str):
        return len(document)
    parts = document.values() if isinstance(document, Mapping) else document
    return sum(map(_characters, parts))
