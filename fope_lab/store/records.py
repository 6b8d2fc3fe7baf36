"""What a stage's folder holds: the paths of its files, and the shape of each JSON file.

A reader returns None for a file that is missing, is not whole JSON, or has another shape: damage
costs the stage that has it, never the reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.config.atomic_files import read_json
from fope_lab.config.problems import UserError


class StoreError(UserError):
    """The store can't be used; the message says where and why."""


class StageDoneError(StoreError):
    """The stage is already finished, so there is nothing to begin."""


class LeaseLostError(StoreError):
    """A newer attempt took over the stage while this one was still running."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, cut at 300 characters, or the name of its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


class _Below:
    """A path below the folder of a stage, joined when it is asked for: of thousands of stages, most
    files are not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: StagePaths, owner: type) -> Path:
        return paths.folder / self._name


class StagePaths:
    """Where the files of one stage are: `folder` is `<store>/<kind>/<key>`."""

    request = _Below("stage.yaml")  # the resolved configuration that was asked for
    metrics = _Below("metrics")  # a segment for each attempt and checkpoint interval
    checkpoints = _Below("checkpoint")
    progress = _Below("progress.json")  # the latest progress, for the progress view alone
    log = _Below("log.txt")  # all attempts append to it
    result = _Below("result.json")  # written when the stage is finished
    done = _Below("DONE")  # the marker that it is

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def key(self) -> str:
        """The name of the folder."""
        return self.folder.name

    @property
    def name(self) -> str:
        """The kind and the key."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    def result_of(self, token: int) -> Path:
        """The result that attempt `token` wrote, until DONE says that it is the stage's."""
        return self.folder / f".result-{token:04d}.json"

    def results(self) -> list[Path]:
        """The result, and those of attempts that stalled or died before it got its name."""
        return [self.result, *sorted(self.folder.glob(".result-*.json"))]

    def set_aside(self, token: int) -> Path:
        """Where attempt `token` moved the output that was there before it."""
        return self.folder / "set-aside" / f"{token:04d}"

    @property
    def store(self) -> Path:
        """The root folder of the store that holds the stage."""
        return self.folder.parents[1]

    def segment(self, token: int, step: int) -> Path:
        """The metric segment that attempt `token` began after `step` steps."""
        return self.metrics / f"{token:04d}-{step:09d}.jsonl"

    def checkpoint(self, token: int, step: int) -> Path:
        """The folder of the checkpoint that attempt `token` saved after `step` steps."""
        return self.checkpoints / f"{token:04d}-{step:09d}"


Shape = Mapping[str, type | tuple[type, ...]]
"""The types of the fields that a mapping must have."""
_NUMBER = (int, float)
_DONE: Shape = {
    "stage": str,
    "token": int,
    "time": _NUMBER,
    "seconds": _NUMBER,
    "earlier": dict,
    "checkpoint": (str, type(None)),
    "result_sha256": str,
    "files": dict,
}
_ATTEMPT: Shape = {"owner": str, "started": _NUMBER}
_END: Shape = {"outcome": str}
_ORIGIN: Shape = {"token": int, "step": int}
_EARLIER: Shape = {"attempts": int, "seconds": _NUMBER}
_PROGRESS: Shape = {"token": int, "step": int, "total": int}
_WORK: Shape = {"seconds": _NUMBER, "cpu_seconds": _NUMBER}
_MANIFEST: Shape = {"stage": str, "files": dict, "metrics": dict, **_WORK}
_ROW: Shape = {"step": int, "time": int, "values": dict}
_CORPUS: Shape = {
    **dict.fromkeys(("corpus", "files", "identity"), dict),
    **dict.fromkeys(("folder", "sweep"), str),
    "time": _NUMBER,
}
_FILE: Shape = {"size": int, "sha256": str}


def read_done(path: Path) -> dict[str, Any] | None:
    """DONE: who finished the stage, when, and which result and checkpoint belong to it."""
    done = _shaped(read_json(path), _DONE)
    if done is None or _shaped(done["earlier"], _EARLIER) is None:
        return None
    whole = _are_texts(done.get("parents", {})) and _are_digests(done["files"])
    return done if whole else None


def read_attempt(path: str) -> dict[str, Any] | None:
    """attempts/TOKEN.json: the owner, the start, and the checkpoint that it resumed from."""
    attempt = _shaped(read_json(path), _ATTEMPT)
    if attempt is None or not _are_texts(attempt.get("parents", {})):
        return None
    origin = attempt.get("resumed_from")
    whole = origin is None or _shaped(origin, _ORIGIN) is not None
    return attempt if whole and isinstance(attempt.get("made_by"), dict | None) else None


def read_end(path: str) -> dict[str, Any] | None:
    """attempts/TOKEN.end: how and when the attempt ended; its `seconds` if it could tell itself."""
    end = _shaped(read_json(path), _END)
    whole = end is not None and all(isinstance(end.get(n, 0), _NUMBER) for n in ("time", "seconds"))
    return end if whole else None


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
    """manifest.json: the digests of a checkpoint's `files` and of its rows of `metrics`, and the
    `seconds` and `cpu_seconds` that the work up to it took."""
    manifest = _shaped(read_json(path), _MANIFEST)
    if manifest is None or not manifest["files"]:
        return None
    whole = _are_digests(manifest["files"]) and _are_digests(manifest["metrics"])
    return manifest if whole else None


def as_row(value: Any) -> dict[str, Any] | None:
    """A line of metrics: a step, its time in ms since 1970, and numbers by name."""
    row = _shaped(value, _ROW)
    whole = row is not None and all(isinstance(v, _NUMBER) for v in row["values"].values())
    return row if whole else None


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _are_digests(value: Any) -> bool:
    return isinstance(value, dict) and all(_shaped(entry, _FILE) for entry in value.values())


def _shaped(value: Any, shape: Shape) -> dict[str, Any] | None:
    """The value if it is a mapping whose fields have these types, else None."""
    if not isinstance(value, dict):
        return None
    for name, kinds in shape.items():
        if not isinstance(value.get(name), kinds):
            return None
    return value
