"""Sizes and SHA-256 digests of files, to tell whether a file still holds what was written."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import sha256_file

FileDigests = Mapping[str, Mapping[str, Any]]
"""The `size` in bytes and the `sha256` of files, by their paths from a folder."""


def digests_of(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The digests of files below `folder`, in the order of `names`. Raises OSError."""
    digests = {}
    for name in names:
        status = (folder / name).stat()
        digest = _sha256(folder / name, status.st_size, status.st_mtime_ns)
        digests[name] = {"size": status.st_size, "sha256": digest}
    return digests


def forget_digests() -> None:
    """Have every file read again when its digest is next asked for: damage may leave its size and
    time as they were."""
    _sha256.cache_clear()


def changed_sizes(folder: Path, digests: FileDigests) -> list[str]:
    """The files that are missing or have another size than was written. This reads no file."""
    return [name for name, entry in digests.items() if _size(folder / name) != entry["size"]]


def changed_files(folder: Path, digests: FileDigests) -> list[str]:
    """The files that are missing or no longer hold what was written.

    This reads every byte, but a file that was read before only if its size or time is another, or
    after `forget_digests`.
    """
    return [name for name, entry in digests.items() if not _is_as_written(folder / name, entry)]


def digest_of_digests(digests: FileDigests) -> str:
    """One SHA-256 for the names and contents of files, whatever their order."""
    contents = sorted((name, entry["sha256"]) for name, entry in digests.items())
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()


def _is_as_written(path: Path, entry: Mapping[str, Any]) -> bool:
    try:
        status = path.stat()
        return status.st_size == entry["size"] and (
            _sha256(path, status.st_size, status.st_mtime_ns) == entry["sha256"]
        )
    except OSError:
        return False


@functools.lru_cache(maxsize=65536)
def _sha256(path: Path, size: int, written: int) -> str:
    return sha256_file(path)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
