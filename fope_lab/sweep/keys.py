"""A stage's identity: the hash of its configuration, of its parents, and of its data.

The configuration enters without fields at their defaults, so that a field added later changes no
old key, and without the fields that can't change a number. A corpus enters as the key of the
prepare-data stage that tokenizes it, whose own key has the corpus's identity. A tokenizer that is
trained or copied enters as the key of the stage that makes it. The versions of the embedding's
parts, of tasks and of the analysis enter unless they are the first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fope_lab.data.roles import TOKENIZER, text_role
from fope_lab.stages import StageConfig
from fope_lab.stages.parts import parts_of_stage, versions_of
from fope_lab.stages.serialise import hashed_fields

KEY_LENGTH = 20  # hexadecimal digits: 80 bits
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def stage_key(
    spec: StageConfig, parents: Mapping[str, str], key_replacements: Mapping[str, Any] | None = None
) -> str:
    """Return the key of a stage.

    `parents` are the keys of its parents by role. `key_replacements` replace fields, such as the
    name of a local file by the hash of its content.
    """
    config = {**hashed_fields(spec), **(key_replacements or {})}
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
    return hashlib.sha256(_canonical(value).encode()).hexdigest()[:KEY_LENGTH]
