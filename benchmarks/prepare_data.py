"""Preparation of data: tokens per second with one process and with two, and peak memory.

    python benchmarks/prepare_data.py [--megabytes 64] [--tokenizer PATH] [--files GLOB]

Text is repeated to the requested size and tokenised alternately with one process and with two, each
time in a fresh stage. Without --tokenizer, a tokenizer of 4,096 tokens is trained first. Memory is
the peak of the stage's own process, and of a process that it started, at a quarter of the text and
at all of it: with streaming, it does not grow with the text.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fope_lab.data.corpora.base import Corpus, Split
from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.packing import write_packed
from fope_lab.data.tokenizers.recipe import TrainedTokenizer, parse_tokenizer
from fope_lab.data.tokenizers.tokenizer import load_tokenizer

RUNS = 3
SHARD_LENGTH = 1 << 22
"""The number of tokens per file, small enough to give many files."""


class Repeated(Corpus):
    """The training documents of a corpus, again and again, as many characters as are wanted."""

    characters: int
    documents_once: list[Any]

    def __init__(self, corpus: Corpus, characters: int) -> None:
        object.__setattr__(self, "documents_once", list(corpus.documents("train")))
        object.__setattr__(self, "characters", characters)

    def identity(self) -> dict[str, Any]:
        """Return a nominal identity, which nothing reads."""
        return {"type": "repeated"}

    def documents(self, split: Split) -> Iterator[str]:
        left = self.characters
        while left > 0:
            for document in self.documents_once:
                yield document
                left -= len(document)


def stage(corpus: Any, tokenizer: str, megabytes: float, processes: int) -> None:
    """Prepare once in this process, and print what was measured."""
    text = Repeated(parse_corpus(corpus, Path.cwd()), int(megabytes * 1e6))
    loaded = load_tokenizer(tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        data = write_packed(
            Path(folder), text, loaded, "train", processes=processes, shard_length=SHARD_LENGTH
        )
        seconds = time.perf_counter() - start
    of = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peaks = [resource.getrusage(who).ru_maxrss / 1024 for who in of]
    print(json.dumps({"tokens": data["tokens"], "seconds": seconds, "peaks": peaks}))


def measure(corpus: Any, tokenizer: str, megabytes: float, processes: int) -> dict[str, Any]:
    """What `stage` measures in a fresh process."""
    call = f"stage({corpus!r}, {tokenizer!r}, {megabytes}, {processes})"
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    command = [sys.executable, "-c", f"{code}from prepare_data import stage\n{call}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=64)
    parser.add_argument("--tokenizer", help="a tokenizer.json, a folder, or byte")
    parser.add_argument("--files", help="text files to repeat, instead of Python's documentation")
    options = parser.parse_args()
    corpus: Any = {"files": options.files} if options.files else "python-docs"
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = options.tokenizer
        if tokenizer is None:
            recipe = parse_tokenizer({"train": "bpe", "vocabulary": 4096, "corpus": corpus}, Path())
            assert isinstance(recipe, TrainedTokenizer)
            tokenizer = str(Path(folder) / "tokenizer.json")
            recipe.write(Path(tokenizer))
        found: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
        for _ in range(RUNS):
            for processes, runs in found.items():
                runs.append(measure(corpus, tokenizer, options.megabytes, processes))
        small = {n: measure(corpus, tokenizer, options.megabytes / 4, n) for n in found}
    speeds = {}
    for processes, runs in found.items():
        speeds[processes] = statistics.median(run["tokens"] / run["seconds"] for run in runs)
        own, child = (max(run["peaks"][i] for run in runs) for i in (0, 1))
        before = small[processes]["peaks"]
        print(
            f"{processes} process{'es' if processes > 1 else ''}: {speeds[processes]:,.0f} tokens/s"
            f" ({runs[0]['tokens']:,} tokens); peak memory {own:.0f} MB"
            + (f" and {child:.0f} MB in each other process" if processes > 1 else "")
            + f"; at a quarter of the text {before[0]:.0f} MB"
            + (f" and {before[1]:.0f} MB" if processes > 1 else "")
        )
    print(f"two processes over one: {speeds[2] / speeds[1]:.2f}×")


if __name__ == "__main__":
    main()
