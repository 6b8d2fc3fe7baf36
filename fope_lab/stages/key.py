"""A stage's identity: the hash of its configuration, of its parents, and of its data.

The configuration enters without fields at their defaults, so that a field added later changes no
old key, and without the fields that can't change a number. A corpus enters as the key of the
prepare-data stage that tokenizes it, whose own key has the corpus's identity. A tokenizer that is
trained or copied enters as the key of the stage that makes it. The versions of the embedding's
parts, of tasks and of the analysis enter unless they are 1.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING
from typing import Any

from fope_lab.config.options import default_of, option_name
from fope_lab.config.roles import TOKENIZER, text_role
from fope_lab.embeddings import Embedding
from fope_lab.stages.base import StageConfig

KEY_LENGTH = 20  # hexadecimal digits: 80 bits
PLAIN = (str, int, float, type(None))
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def stage_key(
    spec: StageConfig, parents: Mapping[str, str], key_replacements: Mapping[str, Any] | None = None
) -> str:
    """Return the key of a stage. `parents` are the keys of its parents by role. `key_replacements`
    replace fields, such as the name of a local file by the hash of its content; they alone say
    what the key has of `prefix`, which depends on the tokenizer."""
    config = dict(hashed_fields(spec))
    config.pop("prefix", None)
    config |= key_replacements or {}
    if TOKENIZER in parents:
        config.pop("tokenizer", None)
    for i, field in enumerate(spec.corpora()):
        if text_role(i) in parents:
            config.pop(field, None)
    if "mix" in (data := config.get("data", {})):
        mix = [
            {k: v for k, v in source.items() if k != "corpus" or text_role(i) not in parents}
            for i, source in enumerate(data["mix"])
        ]
        config["data"] = {**data, "mix": mix}
    of = {"kind": spec.kind, "version": spec.version, "config": config, "parents": dict(parents)}
    if versions := versions_of(parts_of_stage(spec)):
        of["versions"] = versions
    return digest(of)


def digest(value: Any) -> str:
    """Return the first KEY_LENGTH hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(_encode(value).encode()).hexdigest()[:KEY_LENGTH]


def config_json(spec: StageConfig) -> dict[str, Any]:
    """Return the kind and every field of a configuration as JSON values."""
    return {"kind": spec.kind, **_json(spec, hashed=False)}


def hashed_fields(spec: StageConfig) -> dict[str, Any]:
    """Return the fields in a stage's key as JSON values: no defaults, no `excluded_from_key`."""
    fields: dict[str, Any] = _json(spec, hashed=True)
    return fields


def parts_of_stage(spec: StageConfig) -> list[type[Any]]:
    """Return the registered classes that a stage computes with, each once, its own kind first.
    Those of its embedding, tasks, corpora and analysis: their source is what it is made by."""
    return list(dict.fromkeys(_parts(spec)))


def parts_of_embedding(embedding: Embedding) -> list[type[Any]]:
    """Return the mechanism and the frequency transforms of an embedding."""
    return list(dict.fromkeys(_parts(embedding)))


def versions_of(parts: Iterable[type[Any]]) -> dict[str, int]:
    """Return the version of each part, by its names in sweep files, unless it is 1. Version 1 is
    left out, so that giving a class a version changes no key. A kind of stage has its version in a
    place of its own in the key."""
    return {
        part.key_name: part.version
        for part in parts
        if hasattr(part, "key_name") and part.version != 1
    }


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, str, Any], ...] | None:
    """The name, the name in a file, and the default of each field; None if not a dataclass."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple((f.name, option_name(f), default_of(f)) for f in dataclasses.fields(kind))


def _json(value: Any, *, hashed: bool) -> Any:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, dict):
        return {name: _json(item, hashed=hashed) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item, hashed=hashed) for item in value]
    if hasattr(value, "canonical"):
        return value.canonical()
    kind: Any = type(value)
    if (fields := _fields(kind)) is None:
        return value
    # Kept with the value, which never changes: the stages of a large sweep share most of theirs.
    kept, name = vars(value), "_hashed" if hashed else "_whole"
    if name not in kept:
        outside = getattr(value, "excluded_from_key", ()) if hashed else ()
        kept[name] = {
            option: _json(item, hashed=hashed)
            for field, option, default in fields
            if field not in outside
            and ((item := getattr(value, field)) != (default if hashed else MISSING))
        }
    return kept[name]


def _parts(value: Any) -> Iterator[type[Any]]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _parts(item)
    kind: Any = type(value)
    if (fields := _fields(kind)) is None:
        return
    yield kind
    for name, _, _ in fields:
        if not isinstance(item := getattr(value, name), PLAIN):
            yield from _parts(item)
    yield from getattr(value, "more_parts", ())
