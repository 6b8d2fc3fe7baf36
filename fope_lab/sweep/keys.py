"""A stage's identity: the hash of its configuration, of its parents, and of its data.

The configuration enters without fields at their defaults, so that a field added later changes no
old key, and without the fields that can't change a number. A corpus enters as the key of the
prepare-data stage that tokenizes it, whose own key has the corpus's identity. A tokenizer that is
trained or copied enters as the key of the stage that makes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fope_lab.stages import StageConfig, plain

KEY_LENGTH = 20  # hexadecimal digits: 80 bits


def stage_key(
    spec: StageConfig, parents: Mapping[str, str], identities: Mapping[str, Any] | None = None
) -> str:
    """Return the key of a stage.

    `parents` are the keys of its parents by role. `identities` replace fields of the configuration,
    such as the name of a local file by the hash of its content.
    """
    config = {**plain(spec, key=True), **(identities or {})}
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
            "kind": spec.kind,
            "version": spec.version,
            "config": config,
            "parents": dict(parents),
        }
    )


def digest(value: Any) -> str:
    """Return the first KEY_LENGTH hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]
