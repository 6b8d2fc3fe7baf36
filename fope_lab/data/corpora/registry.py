"""From what a sweep file says about a corpus to the corpus: `parse_corpus`.

A description is a preset's name, a type's name where the type needs no options, a mapping
`{type: NAME, option: value}`, or the shorthands `{files: GLOB}` and `{dataset: NAME, …}`.
Nothing here needs torch, and nothing is downloaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.config.problems import FieldPath, Problem, unknown_name
from fope_lab.data.corpora.base import Corpus, Split
from fope_lab.data.corpora.hub import (
    PRESETS,
    Dataset,
    DatasetChat,
    DatasetJoined,
    DatasetPairs,
)
from fope_lab.data.corpora.local import Files, PythonDocs, PythonDocstrings, PythonSource
from fope_lab.data.options import build, schema
from fope_lab.data.problems import CorpusError, DataError

__all__ = [
    "PRESETS",
    "Corpus",
    "CorpusError",
    "Dataset",
    "DatasetChat",
    "DatasetJoined",
    "DatasetPairs",
    "Files",
    "PythonDocs",
    "PythonDocstrings",
    "PythonSource",
    "Split",
    "corpus_json_schema",
    "corpus_names",
    "parse_corpus",
]


def parse_corpus(value: Any, base: Path, at: FieldPath = ()) -> Corpus:
    """The corpus that a description stands for.

    Relative globs and folders start from `base`, the sweep file's folder, or if nothing is there,
    from the current directory. `at` is the field's path in errors. Raises CorpusError holding
    every problem found.
    """
    try:
        return _parse(value).resolved(base)
    except DataError as error:
        raise CorpusError(error.problems, at) from error


def corpus_names() -> list[str]:
    """What a bare name may be: every preset, and every type that needs no options."""
    return [*(name for name, cls in Corpus.types.items() if not _required(cls)), *PRESETS]


def corpus_json_schema() -> dict[str, Any]:
    """Every preset and type: by name alone where nothing is required, or with options."""
    objects = [schema(cls, {"type": name}) for name, cls in Corpus.types.items()]
    objects += [schema(type(preset), {"type": name}, preset) for name, preset in PRESETS.items()]
    shorthands = [schema(cls, {}) for cls in Corpus.types.values() if cls.shorthand]
    return {"anyOf": [{"enum": corpus_names()}, *objects, *shorthands]}


def _parse(value: Any) -> Corpus:
    if isinstance(value, str):
        if value not in corpus_names():
            needs = f"; {value} needs options: {{type: {value}, …}}" * (value in Corpus.types)
            problem = unknown_name((), "corpus", value, sorted(corpus_names()))
            raise DataError(problem.message + needs)
        return _parse({"type": value})
    if not isinstance(value, Mapping):
        raise DataError(f"found {value!r}, needs a corpus's name or a mapping with its type")
    options = {str(option): item for option, item in value.items()}
    name = options.pop("type") if "type" in options else _shorthand(options)
    if not isinstance(name, str):
        raise DataError(Problem(("type",), f"found {name!r}, needs a corpus's name"))
    if name in PRESETS:
        preset = PRESETS[name]
        fixed = {field.name: getattr(preset, field.name) for field in dataclasses.fields(preset)}
        return build(type(preset), {**fixed, **options}, f"corpus {name}")
    if name not in Corpus.types:
        names = sorted([*Corpus.types, *PRESETS])
        raise DataError(unknown_name(("type",), "corpus", name, names))
    return build(Corpus.types[name], options, f"corpus {name}")


def _shorthand(options: Mapping[str, Any]) -> str:
    for name, cls in Corpus.types.items():
        if cls.shorthand in options:
            return name
    allowed = ", ".join([*Corpus.types, *PRESETS])
    raise DataError(Problem(("type",), f"is missing: the corpus's name (allowed: {allowed})"))


def _required(cls: type[Corpus]) -> bool:
    return any(field.default is dataclasses.MISSING for field in dataclasses.fields(cls))
