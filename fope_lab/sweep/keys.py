"""A stage's identity: the hash of what was asked, of its parents, and of its data.

The configuration enters without fields at their defaults (so that a field added later changes no
old key), and without what can't change a number. Corpora enter by the key of the prepare-data stage
that tokenises them, and that by the corpus's own identity; a tokenizer that is trained or copied by
the key of the stage that does it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fope_lab.stages import StageConfig, plain

KEY_LENGTH = 20  # hexadecimal digits: 80 bits


def stage_key(
    spec: StageConfig, parents: Mapping[str, str], data: Mapping[str, Any] | None = None
) -> str:
    """The key of a stage with these parents by role; `data` replaces fields by identities."""
    config = {**plain(spec, key=True), **(data or {})}
    if "tokenizer" in parents:
        config.pop("tokenizer", None)
    for i, field in enumerate(spec.corpora()):
        if f"data.{i}" in parents:
            config.pop(field, None)
    for i, source in enumerate(config.get("data", {}).get("mix", ())):
        if f"data.{i}" in parents:
            source.pop("corpus")
    return digest(
        {
            "kind": type(spec).model_fields["kind"].annotation.__args__[0],  # type: ignore[union-attr]
            "version": spec.version,
            "config": config,
            "parents": dict(parents),
        }
    )


def digest(value: Any) -> str:
    """The first KEY_LENGTH hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]
