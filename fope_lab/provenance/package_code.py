"""The digest of all code, for what is made anew whenever any of it has changed."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from fope_lab.config.plugins import loaded_plugins

SUFFIXES = (".py", ".j2", ".js")
"""The suffixes of the package's code, which includes templates."""


def package_digest() -> str:
    """The SHA-256 of the names and the contents of all files of the package and of plug-ins."""
    digests = [_digest(Path(__file__).parents[1])]
    digests += sorted(_digest(plugin.place) for plugin in loaded_plugins())
    return hashlib.sha256("".join(digests).encode()).hexdigest()


@functools.cache
def _digest(place: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if path.suffix in SUFFIXES:
            digest.update(f"{path.relative_to(place.parent)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
