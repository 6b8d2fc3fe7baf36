"""Sweep files for tests: a small one to change, and what load_sweep says of a wrong one."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fope_lab.sweep import Problem, Sweep, SweepError, load_sweep
from fope_lab.sweep.graph import Stage

PRETRAIN: dict[str, Any] = {
    "kind": "pretrain",
    "model": {"scale": "tiny"},
    "embedding": "rope",
    "data": {"corpus": "c4", "length": 64},
    "train": {"tokens": 100_000, "batch_tokens": 2048, "learning_rate": 1e-3},
}
BASE: dict[str, Any] = {
    "name": "base",
    "stages": {
        "pretrain": PRETRAIN,
        "extend": {
            "kind": "extend",
            "from": "pretrain",
            "data": {"corpus": "c4", "length": 128},
            "train": {"tokens": 50_000, "batch_tokens": 2048, "learning_rate": 1e-4},
        },
        "finetune": {
            "kind": "finetune",
            "from": "extend",
            "data": {"corpus": "python-docstrings", "length": 128},
            "train": {"tokens": 50_000, "batch_tokens": 2048, "learning_rate": 1e-4},
        },
        "perplexity": {
            "kind": "perplexity",
            "from": "pretrain",
            "corpus": "c4",
            "lengths": [32, 64],
        },
        "passkey": {"kind": "passkey", "from": "extend", "lengths": [32, 64], "form": "symbolic"},
    },
}
"""Every kind of stage; c4 is known by its revision, so that nothing is read or downloaded."""

PRETRAIN_LINE = (
    "{kind: pretrain, model: {scale: tiny}, embedding: rope, data: {corpus: c4, length: 64},"
    " train: {tokens: 1e5, batch_tokens: 2048, learning_rate: 1e-3}}"
)
"""A stage's section on one line, for files in which lines count."""


def write(path: Path, content: str | bytes | Mapping[str, Any]) -> Path:
    """Write a file: text, bytes, or a mapping as YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        text = content if isinstance(content, str) else yaml.safe_dump(dict(content))
        path.write_text(text, encoding="utf-8")
    return path


def changed(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with the values of dotted paths exchanged: {"stages.pretrain.embedding": "nope"}."""
    result: dict[str, Any] = copy.deepcopy(dict(content))
    for path, value in changes.items():
        *way, last = path.split(".")
        target = result
        for part in way:
            target = target.setdefault(part, {})
        target[last] = value
    return result


def load(folder: Path, content: str | bytes | Mapping[str, Any]) -> Sweep:
    """The sweep of a file with this content."""
    return load_sweep(write(folder / "sweep.yaml", content))


def of(sweep: Sweep, name: str) -> list[Stage]:
    """The stages of one name."""
    return [stage for stage in sweep.stages if stage.section == name]


def keys(sweep: Sweep) -> dict[str, str]:
    """The key of every stage by its name."""
    return {stage.label: stage.key for stage in sweep.stages}


def problems(folder: Path, content: str | bytes | Mapping[str, Any]) -> list[Problem]:
    """All that is wrong with a file of this content."""
    with pytest.raises(SweepError) as caught:
        load(folder, content)
    assert len(set(map(str, caught.value.problems))) == len(caught.value.problems)
    return caught.value.problems


def told(folder: Path, content: str | bytes | Mapping[str, Any]) -> list[str]:
    """All that is wrong, each as "LINE FIELD: MESSAGE", in the order of the lines."""
    path = folder / "sweep.yaml"
    found = []
    for one in problems(folder, content):
        place = "" if one.file == path else f"{one.file.name} "
        field = f"{one.field}: " if one.field else ""
        found.append(f"{place}{one.line or '-'} {field}{one.message}")
    return found
