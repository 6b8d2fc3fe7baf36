"""What each JSON file of a stage's folder must hold. A file that does not hold it is damaged.

Every function returns the content of a file, or None if the file is missing, is no whole JSON, or
has another shape. So damage costs the stage that has it, and never the reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import read_json

Shape = Mapping[str, type | tuple[type, ...]]
"""The types of the fields that a mapping must have."""
_NUMBER = (int, float)
_DONE: Shape = {"token": int, "time": _NUMBER, "seconds": _NUMBER, "result_sha256": str}
_ATTEMPT: Shape = {"owner": str, "started": _NUMBER}
_END: Shape = {"outcome": str}
_ORIGIN: Shape = {"token": int, "step": int}
_EARLIER: Shape = {"attempts": int, "seconds": _NUMBER}
_PROGRESS: Shape = {"token": int, "step": int, "total": int}
_ROW: Shape = {"step": int, "time": int, "values": dict}
_CORPUS: Shape = {
    "corpus": dict,
    "folder": str,
    "sweep": str,
    "files": dict,
    "identity": dict,
    "time": _NUMBER,
}
_FILE: Shape = {"size": int, "sha256": str}


def read_done(path: Path) -> dict[str, Any] | None:
    """DONE: who finished the stage, when, and which result and checkpoint belong to it.

    An old version wrote nothing of `earlier` attempts.
    """
    done = _shaped(read_json(path), _DONE)
    if done is None or not isinstance(done.get("checkpoint", 0), str | None):
        return None
    if "earlier" in done and _shaped(done["earlier"], _EARLIER) is None:
        return None
    whole = _are_texts(done.get("parents", {})) and _are_digests(done.get("files", {}))
    return done if whole else None


def read_attempt(path: Path) -> dict[str, Any] | None:
    """attempts/TOKEN.json: the owner, the start, and the checkpoint that it resumed from."""
    attempt = _shaped(read_json(path), _ATTEMPT)
    if attempt is None or not _are_texts(attempt.get("parents", {})):
        return None
    origin, made_by = attempt.get("resumed_from"), attempt.get("made_by")
    if not (origin is None or _shaped(origin, _ORIGIN)):
        return None
    return attempt if isinstance(made_by, dict | None) else None


def read_end(path: Path) -> dict[str, Any] | None:
    """attempts/TOKEN.end: how the attempt ended, and when, unless an old version wrote it.

    The `seconds` that it took are there if the attempt itself recorded its end.
    """
    end = _shaped(read_json(path), _END)
    return end if end is not None and _are_numbers(end, "time", "seconds") else None


def read_progress(path: Path) -> dict[str, Any] | None:
    """progress.json: the attempt, its step, and how many there are."""
    return _shaped(read_json(path), _PROGRESS)


def read_corpus(path: Path) -> dict[str, Any] | None:
    """corpora/NAME.json: what a sweep file names, and what its files held."""
    corpus = _shaped(read_json(path), _CORPUS)
    return corpus if corpus is not None and _are_texts(corpus["files"]) else None


def read_result(path: Path) -> dict[str, Any] | None:
    """result.json, whose content depends on the kind of stage."""
    return _shaped(read_json(path), {})


def read_manifest(path: Path) -> dict[str, Any] | None:
    """manifest.json: the digests of a checkpoint's `files`, and of its rows of `metrics`.

    Its `seconds` and `cpu_seconds` are the time that the work up to it took. An old version wrote
    none of the three.
    """
    manifest = _shaped(read_json(path), {"files": dict})
    if manifest is None or not manifest["files"]:
        return None
    whole = _are_digests(manifest["files"]) and _are_digests(manifest.get("metrics", {}))
    return manifest if whole and _are_numbers(manifest, "seconds", "cpu_seconds") else None


def as_row(value: Any) -> dict[str, Any] | None:
    """A line of metrics: a step, its time in ms since 1970, and numbers by name."""
    row = _shaped(value, _ROW)
    whole = row is not None and all(isinstance(v, _NUMBER) for v in row["values"].values())
    return row if whole else None


def _are_texts(value: Any) -> bool:
    """Whether a value has texts by their names."""
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _are_numbers(value: Mapping[str, Any], *names: str) -> bool:
    """Whether those of the named fields that are there have numbers."""
    return all(isinstance(value.get(name, 0), _NUMBER) for name in names)


def _are_digests(value: Any) -> bool:
    """Whether a value has the size and the SHA-256 of files by their names."""
    return isinstance(value, dict) and all(_shaped(entry, _FILE) for entry in value.values())


def _shaped(value: Any, shape: Shape) -> dict[str, Any] | None:
    """The value if it is a mapping whose fields have these types, else None."""
    if not isinstance(value, dict):
        return None
    fields = all(isinstance(value.get(name), kinds) for name, kinds in shape.items())
    return value if fields else None
