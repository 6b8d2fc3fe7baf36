"""Writing files so that a reader sees the old content or the new, never half of it.

Every file of the store that is replaced or created goes through these functions: data to a
temporary name, fsync, rename (or link) to the final name, fsync of the directory.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space left on the disk, or none that this user or file may have."""
MAKE_ROOM = "make room, and run the same command again: it goes on from what is there"
"""What to do about a full disk."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace `path` with `content`; a crash leaves the old file or the new one."""
    temporary = _write_temporary(path, content)
    os.replace(temporary, path)
    sync_directory(path.parent)


def create_exclusive(path: Path, content: str | bytes) -> bool:
    """Create `path` holding `content`, whole from its first moment; False if it exists already.

    A hard link fails if its name is taken, and unlike open(O_EXCL) it never shows an empty file.
    """
    temporary = _write_temporary(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    sync_directory(path.parent)
    return True


def read_json(path: Path | str) -> Any | None:
    """The JSON value in `path`, or None if the file is missing or not whole JSON."""
    try:
        return json.loads(_read_whole(path).decode())
    except (OSError, ValueError, RecursionError):
        return None


def _read_whole(path: Path | str) -> bytes:
    """The content of a small regular file: of a large sweep's store, tens of thousands are read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for ever
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        parts = []
        while part := os.read(descriptor, status.st_size + 1):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Atomically replace `path` with `value` as JSON."""
    write_atomic(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, is a full disk.

    Libraries in Rust raise no OSError; their message contains "os error 28".
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        if any(f"os error {number}" in str(error) for number in FULL):
            return True
        error = error.__cause__ or error.__context__
    return False


def sync_directory(path: Path) -> None:
    """Make renames inside `path` survive a power failure, where the file system can."""
    with contextlib.suppress(OSError):  # some network file systems refuse to open a directory
        sync_file(path)


def sync_file(path: Path) -> None:
    """Make the content of `path` survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_file(path: Path | str) -> str:
    """Hex SHA-256 of the content of `path`, read in bounded memory."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def files_below(path: Path) -> Iterator[Path]:
    """Every regular file below `path`, in a fixed order."""
    yield from (entry for entry in sorted(path.rglob("*")) if entry.is_file())


def _write_temporary(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    data = content.encode() if isinstance(content, str) else content
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)  # on a full disk, every part of a file is in the way
        raise
    return temporary
