"""From what a sweep file says about a corpus to the corpus: `parse_corpus`.

A description is a preset's name, a type's name where the type needs no options, a mapping
`{type: NAME, option: value}`, or the shorthands `{files: GLOB}` and `{dataset: NAME, …}`.
Nothing here needs torch, and nothing is downloaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fope_lab.config.options import Registry
from fope_lab.config.problems import ConfigError, FieldPath
from fope_lab.data.corpora.base import CORPUS_TYPES, Corpus
from fope_lab.data.corpora.hub import PRESETS
from fope_lab.data.problems import DataError

CORPORA: Registry[Corpus] = Registry("corpus", CORPUS_TYPES, error=DataError, presets=PRESETS)
"""Every type and preset of a corpus by name."""
corpus_names = CORPORA.names
corpus_json_schema = CORPORA.json_schema


def parse_corpus(value: Any, base: Path, at: FieldPath = ()) -> Corpus:
    """The corpus that a description stands for. Relative globs and folders start from `base`, the
    sweep file's folder, or if nothing is there, from the current directory. `at` is the field's
    path in errors. Raises DataError holding every problem found."""
    try:
        return CORPORA.parse(value, base).resolved(base)
    except ConfigError as error:
        raise DataError(error.problems, at) from error
