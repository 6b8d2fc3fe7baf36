"""The store: a folder for each stage, which alone says what was asked, measured and finished.

    <store>/<kind>/<key>/
      stage.yaml      what was asked: the resolved configuration and where it came from
      attempts/       who worked on it (fope_lab/store/lease.py)
      metrics/        <token>-<step>.jsonl: a segment per attempt and checkpoint interval
      checkpoint/     <token>-<step>/, each with a manifest.json that was written last
      progress.json   for the live table; never read as a result
      log.txt  result.json  DONE

A checkpoint counts when its manifest is there and every file in it has the size it says; a stage
is done when DONE is there and what it names is whole. Rows past the checkpoint that an attempt
went on from belong to the lost attempt and are not read.
"""

from __future__ import annotations

from fope_lab.store.attempt import Attempt
from fope_lab.store.checkpoint import Checkpoint
from fope_lab.store.folder import StageFolder
from fope_lab.store.problems import LeaseLostError, StageDoneError, StoreError
from fope_lab.store.root import Store
from fope_lab.store.row import Row

__all__ = [
    "Attempt",
    "Checkpoint",
    "LeaseLostError",
    "Row",
    "StageDoneError",
    "StageFolder",
    "Store",
    "StoreError",
]
