"""How long to wait for MLflow: as long as it shows signs of life."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow import MlflowClient

SILENCE = 8.0
"""Seconds without an answer after which MLflow counts as dead. A user whose server is slower sets
MLFLOW_HTTP_REQUEST_TIMEOUT."""
SLOWEST = 50_000.0
"""Bytes per second of the slowest connection that a file is sent over."""


class Patience:
    """Notes when MLflow was asked and when it answered, and waits for the thread that asks.

    What that thread does between two requests, such as reading the store, is never cut off.
    """

    def __init__(self) -> None:
        self._since: float | None = None  # the request, or the last sign of life during it
        self._extra = 0.0

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """A request to MLflow is under way in this block."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._since = None

    @contextlib.contextmanager
    def sending(self, size: int) -> Iterator[None]:
        """The requests in this block send a file of `size` bytes, which may take its time."""
        self._extra = size / SLOWEST
        try:
            yield
        finally:
            self._extra = 0.0

    def sign(self) -> None:
        """MLflow is at work on the request."""
        if self._since is not None:
            self._since = time.monotonic()

    def wait(self, thread: threading.Thread, limit: float | None = None) -> bool:
        """Wait until `thread` ends; returns False if MLflow is silent for too long before that.

        Returns False after `limit` seconds, too, if it is given.
        """
        start = time.monotonic()
        while True:
            thread.join(0.05)
            if not thread.is_alive():
                return True
            now, since = time.monotonic(), self._since
            if since is not None and now - since > _silence() + self._extra:
                return False
            if limit is not None and now - start > limit:
                return False


class PatientClient:
    """An MlflowClient that tells `patience` when it is asked and when it has answered."""

    def __init__(self, client: MlflowClient, patience: Patience) -> None:
        self._client, self._patience = client, patience

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        if not callable(call):
            return call

        def asked(*args: Any, **settings: Any) -> Any:
            with self._patience.asking():
                return call(*args, **settings)

        return asked


def _silence() -> float:
    with contextlib.suppress(ValueError):
        return max(SILENCE, float(os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT", "0")))
    return SILENCE
