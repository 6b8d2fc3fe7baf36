"""Tokens are the same for any number of processes, and what a process can't do is an error."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fope_lab.config.atomic_files import files_below
from fope_lab.data import tokenising
from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.packing import write_packed
from fope_lab.data.tokenising import tokenised
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer, as_tokenizer

MakeBpe = Callable[..., Any]


def children() -> set[int]:
    """The processes that this one has started and that are still there."""
    pid = os.getpid()
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for task in tasks for child in task.read_text().split()}


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenising, "BATCH_CHARACTERS", 2_000)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("kind", ["text", "pairs"])
def test_the_files_are_the_same_for_any_number_of_processes(
    tmp_path: Path, make_bpe: MakeBpe, kind: str
) -> None:
    rows = ({"prompt": f"{i} sky" * (i % 90), "answer": f"{i}"} for i in range(400))
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pairs = {"type": "dataset-pairs", "dataset": str(tmp_path)}
    (tmp_path / "text.txt").write_text("The grass is green, the sky blue.\n\n" * 1500)
    corpus = parse_corpus(pairs if kind == "pairs" else {"files": "*.txt"}, tmp_path)
    tokenizer = as_tokenizer(make_bpe())
    contents = []
    before = children()
    for processes in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            options: Any = {"processes": processes, "shard_length": 999}
            write_packed(Path(folder), corpus, tokenizer, "train", **options)
            contents.append({p.name: p.read_bytes() for p in files_below(Path(folder))})
    assert len(contents[0]) > 20
    assert contents[0] == contents[1]
    assert children() == before


def test_what_a_worker_raises_is_raised_here() -> None:
    """A lone surrogate, as in damaged JSON, is no UTF-8."""
    before = children()
    texts = ["fine"] * 5000 + ["not \ud800"] + ["fine"] * 5000
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        list(tokenised(texts, "text", ByteTokenizer(), 2))
    assert children() == before


@pytest.mark.usefixtures("small_batches")
def test_stopping_early_ends_the_workers() -> None:
    before = children()
    results = tokenised(iter(lambda: "text " * 400, None), "text", ByteTokenizer(), 2)
    next(results)
    assert len(children() - before) == 2
    results.close()
    assert children() == before


@pytest.mark.usefixtures("small_batches")
def test_writing_that_fails_ends_the_workers(tmp_path: Path) -> None:
    def full(documents: int, tokens: int) -> None:
        assert len(children() - before) == 2
        raise OSError(28, "No space left on device")

    before = children()
    corpus = parse_corpus("python-docs", tmp_path)
    with pytest.raises(OSError, match="No space left"):
        write_packed(tmp_path, corpus, ByteTokenizer(), "train", processes=2, progress=full)
    assert children() == before
    assert not (tmp_path / "data.json").exists()


def test_a_worker_has_neither_torch_nor_a_gpu(make_bpe: MakeBpe) -> None:
    import torch

    worker = tokenising._Worker("text", as_tokenizer(make_bpe()))
    try:
        assert worker.encode(["sky"]).tokens.tolist()
        place = Path(f"/proc/{worker._process.pid}")
        assert b"CUDA_VISIBLE_DEVICES=" in (place / "environ").read_bytes().split(b"\0")
        library = str(Path(torch.__file__).parent / "lib")
        assert library in Path("/proc/self/maps").read_text()
        assert library not in (place / "maps").read_text()
    finally:
        worker.stop()
