"""The forms of a corpus: tokens per second and peak memory of each, beside plain text.

    python benchmarks/forms.py [--megabytes 100]

The documentation that comes with Python, repeated to the size and cut into documents of four
kilobytes, is written in every form that `files:` and `token_ids:` read: as a text file each, as
rows, and as one array of ids. Each is prepared in a fresh process, by a tokenizer of 4,096 tokens
that is trained first; the time has the check that `validate` does.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.packing import write_packed
from fope_lab.data.tokenizers.recipe import TrainedTokenizer, parse_tokenizer
from fope_lab.data.tokenizers.tokenizer import load_tokenizer

ROW = 4000
"""About how many characters a row has."""


def rows(characters: int) -> Iterator[str]:
    """Pieces of the documentation, again and again."""
    texts = list(parse_corpus("python-docs", Path()).documents("train"))
    left = characters
    for text in cycle(map(str, texts)):
        for start in range(0, len(text), ROW):
            yield (piece := text[start : start + ROW])
            left -= len(piece)
            if left <= 0:
                return


def _text(folder: Path, texts: list[str]) -> None:
    for number, text in enumerate(texts):
        (folder / f"{number:06}.txt").write_text(text, encoding="utf-8")


def _jsonl(texts: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def _zstd(content: bytes, path: Path) -> None:
    import pyarrow

    with pyarrow.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(content)


def _csv(folder: Path, texts: list[str]) -> None:
    with (folder / "a.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text",), *((text,) for text in texts)])


def _parquet(folder: Path, texts: list[str]) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"text": texts})
    pyarrow.parquet.write_table(table, folder / "a.parquet", row_group_size=1000)


def _saved(folder: Path, texts: list[str]) -> None:
    import datasets

    datasets.Dataset.from_dict({"text": texts}).save_to_disk(folder / "saved")


FORMS: dict[str, Callable[[Path, list[str]], object]] = {
    "text": _text,
    "JSON Lines": lambda folder, texts: (folder / "a.jsonl").write_bytes(_jsonl(texts)),
    "JSON Lines, gz": lambda folder, texts: (folder / "a.jsonl.gz").write_bytes(
        gzip.compress(_jsonl(texts))
    ),
    "JSON Lines, zst": lambda folder, texts: _zstd(_jsonl(texts), folder / "a.jsonl.zst"),
    "CSV": _csv,
    "Parquet": _parquet,
    "save_to_disk": _saved,
}
ARRAYS: dict[str, Callable[[Path, Any], object]] = {
    ".npy": lambda folder, ids: np.save(folder / "a.npy", ids),
    ".bin": lambda folder, ids: (folder / "a.bin").write_bytes(ids.tobytes()),
}


def stage(corpus: Any, folder: str, tokenizer: str) -> None:
    """Prepare once in this process, and print what was measured."""
    parsed, loaded = parse_corpus(corpus, Path(folder)), load_tokenizer(tokenizer)
    with tempfile.TemporaryDirectory() as place:
        start = time.perf_counter()
        parsed.check()
        data = write_packed(Path(place), parsed, loaded, "train")
        seconds = time.perf_counter() - start
    # Unlike getrusage's, this peak does not begin with that of the process that started this one.
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(json.dumps({"tokens": data["tokens"], "seconds": seconds, "peak": int(peak) / 1024}))


def measure(corpus: Any, folder: Path, tokenizer: Path) -> dict[str, Any]:
    """What `stage` measures in a fresh process."""
    call = f"stage({corpus!r}, {str(folder)!r}, {str(tokenizer)!r})"
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    command = [sys.executable, "-c", f"{code}from forms import stage\n{call}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print a row for each form."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        tokenizer = root / "tokenizer.json"
        recipe = parse_tokenizer(
            {"train": "bpe", "vocabulary": 4096, "corpus": "python-docs"}, root
        )
        assert isinstance(recipe, TrainedTokenizer)
        recipe.write(tokenizer)
        texts = list(rows(int(options.megabytes * 1e6)))
        corpora: dict[str, tuple[Any, Path]] = {}
        for name, write in FORMS.items():
            folder = root / name
            folder.mkdir()
            write(folder, texts)
            given = {"files": "saved"} if name == "save_to_disk" else {"files": "*"}
            corpora[name] = {**given, "cut": "documents"}, folder
        loaded = load_tokenizer(str(tokenizer))
        ids = [loaded.encode(text) for text in texts]
        stream = np.fromiter((i for one in ids for i in [*one, loaded.eos_id]), np.uint16)
        for name, put in ARRAYS.items():
            folder = root / name
            folder.mkdir()
            put(folder, stream)
            given = {"token_ids": "*", "tokenizer": str(tokenizer)}
            corpora[name] = {**given, **({"dtype": "uint16"} if name == ".bin" else {})}, folder
        folder = root / "input_ids"
        folder.mkdir()
        import pyarrow.parquet

        table = pyarrow.table({"input_ids": ids})
        pyarrow.parquet.write_table(table, folder / "a.parquet", row_group_size=1000)
        corpora["input_ids, Parquet"] = {"token_ids": "*", "tokenizer": str(tokenizer)}, folder
        del texts, ids, stream, table
        print(
            f"{'form':20} {'on disk':>9} {'tokens':>12} {'tokens/s':>12} {'of text':>8} {'peak':>8}"
        )
        first = 0.0
        for name, (corpus, folder) in corpora.items():
            found = measure(corpus, folder, tokenizer)
            speed = found["tokens"] / found["seconds"]
            first = first or speed
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
            print(
                f"{name:20} {size:6.1f} MB {found['tokens']:12,} {speed:12,.0f}"
                f" {speed / first:7.2f}× {found['peak']:5.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
