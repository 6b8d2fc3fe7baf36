"""The registered classes that a stage computes with: its kind, embedding, tasks, corpora, analysis.

Their versions are in the stage's key, and their source code is what the stage was made by.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

from fope_lab.analysis.base import Analysis
from fope_lab.config.cache import once_for_each
from fope_lab.data.tasks.base import Task
from fope_lab.embeddings.base import Embedding, FrequencyTransform
from fope_lab.embeddings.presets import PRESETS
from fope_lab.embeddings.registry import parts_of
from fope_lab.stages.base import StageConfig
from fope_lab.stages.serialise import PLAIN

_VERSIONED: tuple[tuple[type[Any], str, str], ...] = (
    (Embedding, "embedding", "name"),
    (FrequencyTransform, "transform", "name"),
    (Task, "task", "task"),
    (Analysis, "analysis", "name"),
)
"""The bases of what has a version of its own, with the attribute that holds its name."""


def parts_of_stage(spec: StageConfig) -> list[type[Any]]:
    """The classes that a configuration names, each once, its own kind first."""
    return list(_parts_of(spec))


def parts_of_embedding(embedding: Embedding) -> list[type[Any]]:
    """The mechanism and the frequency transforms of an embedding."""
    return list(_parts_of(embedding))


def versions_of(parts: Iterable[type[Any]]) -> dict[str, int]:
    """The version of each part that has another than the first, by its names in sweep files.

    The first version is left out, so that giving a class a version changes no key. A kind of stage
    has its version in a place of its own in the key.
    """
    return {
        f"{noun} {getattr(part, name)}": part.version
        for part in parts
        for base, noun, name in _VERSIONED
        if issubclass(part, base) and part.version != 1
    }


def _parts(value: Any) -> Iterator[type[Any]]:
    kind: Any = type(value)
    if isinstance(value, list | tuple):
        for item in value:
            yield from _parts(item)
    elif _field_names(kind) is not None:
        yield from _parts_of(value)


@once_for_each
def _parts_of(section: Any) -> tuple[type[Any], ...]:
    kind: Any = type(section)
    found = [kind]
    for name in _field_names(kind) or ():
        item = getattr(section, name)
        if not isinstance(item, PLAIN):
            found += _parts(item)
    if isinstance(section, Analysis):
        for preset in section.presets:
            known = PRESETS.get(preset)
            composition = known.composition if known else {"type": preset}
            found += [part for part, _ in parts_of(composition)]
    return tuple(dict.fromkeys(found))


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...] | None:
    """The names of a dataclass's fields; None for any other type."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(field.name for field in dataclasses.fields(kind))
