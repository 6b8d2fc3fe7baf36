"""The fingerprint of a report: equal for reports whose files would be equal but for their date.

It covers everything that the renderers are given, the output of analyses that they read from the
store, their code, and the packages that they draw with. It leaves out the moment of the report, and
the rows of metrics, of which the report shows the training curves alone.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fope_lab.analysis.base import ARRAYS, FIGURE
from fope_lab.atomic_files import sha256_file
from fope_lab.provenance.package_code import package_digest
from fope_lab.report.build import Report
from fope_lab.report.results.aggregate import Cell
from fope_lab.report.results.analyses import AnalysisResult
from fope_lab.report.results.stage_results import StageResult
from fope_lab.store import StageFolder
from fope_lab.sweep.graph import Stage

LEFT_OUT = frozenset({("Report", "generated"), ("StageResult", "rows"), ("Stage", "spec")})
"""The fields that change no file of a report but for its date, by the names of their classes. The
configuration of a stage says all that its `spec` does."""
DRAWN_WITH = ("jinja2", "markupsafe", "matplotlib", "numpy", "pyyaml", "scipy")
"""The packages whose versions can change a page."""


def fingerprint(report: Report) -> str:
    """The SHA-256 of all that the files of `report` follow from, but for its date."""
    digest = hashlib.sha256(_code_digest().encode())
    text = json.dumps(report, default=_Plain(), ensure_ascii=False)
    digest.update(text.encode("utf-8", "surrogatepass"))
    for result in report.analyses:
        digest.update(_output_digests(result).encode())
    return digest.hexdigest()


@functools.cache
def _code_digest() -> str:
    """The SHA-256 of the code of the whole package, and of the versions of DRAWN_WITH."""
    versions = {name: importlib.metadata.version(name) for name in DRAWN_WITH}
    parts = [platform.python_version(), versions, package_digest()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _output_digests(result: AnalysisResult) -> str:
    """The SHA-256 of the arrays and of the figure of an analysis; empty where they are missing."""
    checkpoint = StageFolder(result.folder).checkpoint()
    files = [] if checkpoint is None else [checkpoint.path / name for name in (ARRAYS, FIGURE)]
    return json.dumps([sha256_file(path) if path.is_file() else "" for path in files])


class _Plain:
    """Makes a value that JSON lacks one that it has; what occurs several times is told once."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Cell | StageResult):
            if (number := self._numbers.get(id(value))) is not None:
                return {"": type(value).__name__, "again": number}
            self._numbers[id(value)] = len(self._numbers)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _fields(value) | ({"config": value.config} if isinstance(value, Stage) else {})
        if isinstance(value, np.ndarray):
            return [str(value.dtype), value.shape, value.tobytes().hex()]
        if isinstance(value, Mapping):
            return _ordered(value)
        if isinstance(value, Path | frozenset | set):
            return str(value) if isinstance(value, Path) else sorted(map(repr, value))
        raise TypeError(f"a report holds a {type(value).__name__}, which has no fingerprint")


def _fields(value: Any) -> dict[str, Any]:
    kind: Any = type(value)
    shown = {name: _ordered(getattr(value, name)) for name in _names(kind)}
    return {"": type(value).__name__, **shown}


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    """The fields of a class that have a fingerprint."""
    names = (field.name for field in dataclasses.fields(kind))
    return tuple(name for name in names if (kind.__name__, name) not in LEFT_OUT)


def _ordered(value: Any) -> Any:
    """The pairs of a mapping, whose keys may be any value; every other value unchanged."""
    return [[key, item] for key, item in value.items()] if isinstance(value, Mapping) else value
