"""The digest of the whole package, for what is made anew whenever any of its code has changed."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

SUFFIXES = (".py", ".j2", ".js")
"""The suffixes of the package's code, which includes templates."""


@functools.cache
def package_digest() -> str:
    """The SHA-256 of the names and the contents of all files of code."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in SUFFIXES:
            digest.update(f"{path.relative_to(root)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
