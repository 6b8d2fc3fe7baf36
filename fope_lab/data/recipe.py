"""What a training reads, as a sweep file says it: a length and a mixture of corpora and tasks.

`{corpus: c4, length: 512}`, `{files: GLOB, length: 512}`, or
`{length: 64, mix: [{corpus: python-docs, weight: 0.7}, {task: passkey, weight: 0.3}]}`; beside
them, how documents become rows: `documents: within`, `pack: true`.
Nothing here needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from fope_lab.config.problems import FieldPath, Problem, unknown_name
from fope_lab.data.corpora.registry import Corpus, corpus_json_schema, parse_corpus
from fope_lab.data.options import build, schema
from fope_lab.data.problems import DataError
from fope_lab.data.tasks.base import Task
from fope_lab.data.tasks.passkey_task import PasskeyTask
from fope_lab.data.tasks.posgen_task import PosGenTask
from fope_lab.data.tasks.ruler_tasks import KeyValueTask, VariableTrackingTask

Documents = Literal["across", "within"]
TASKS: dict[str, type[Task]] = {
    task.task: task for task in (PasskeyTask, PosGenTask, KeyValueTask, VariableTrackingTask)
}


@dataclass(frozen=True, kw_only=True)
class Source:
    """One part of a mixture: exactly one of a corpus and a task. Weights need not sum to 1."""

    corpus: Corpus | None = None
    task: Task | None = None
    weight: float = 1.0

    def canonical(self) -> dict[str, Any]:
        """The shortest description; parsing it gives the source back."""
        what = self.task.canonical() if self.task else {"corpus": self._corpus.canonical()}
        return what if self.weight == 1.0 else {**what, "weight": self.weight}

    @property
    def _corpus(self) -> Corpus:
        assert self.corpus is not None
        return self.corpus


@dataclass(frozen=True, kw_only=True)
class Data:
    """Sequences of `length` tokens from a mixture.

    Text runs on over the ends of its documents; with `documents` within, a token sees nothing of
    the documents before its own, and the first token of each is not predicted. With `pack`, a row
    holds as many supervised examples as fit, which see nothing of each other, and not one.
    """

    length: int
    mix: tuple[Source, ...]
    documents: Documents = "across"
    pack: bool = False

    def canonical(self) -> dict[str, Any]:
        """The shortest description; parsing it gives the data back."""
        rows = {name: getattr(self, name) for name in ROWS}
        chosen = {name: value for name, value in rows.items() if value != getattr(Data, name)}
        return {"length": self.length, "mix": [one.canonical() for one in self.mix], **chosen}


ROWS = ("documents", "pack")
"""The options of Data that say how documents become rows."""


def parse_data(value: Any, base: Path, at: FieldPath = ()) -> Data:
    """The data that a description stands for; `base` is as in parse_corpus.

    Raises DataError holding every problem found.
    """
    problems: list[Problem] = []
    data = _data(value, base, problems)
    if problems or data is None:
        raise DataError(problems, at)
    return data


def data_json_schema() -> dict[str, Any]:
    """The JSON Schema of `data`: with `mix`, or with one source's keys beside `length`."""
    length = {
        "length": {"type": "integer", "minimum": 1},
        "documents": {
            "enum": list(get_args(Documents)),
            "description": "of text: whether a token sees the documents before its own",
            "default": Data.documents,
        },
        "pack": {
            "type": "boolean",
            "description": "of pairs and chats: several in a row, which don't see each other",
            "default": Data.pack,
        },
    }
    weight = {"weight": {"type": "number", "exclusiveMinimum": 0, "default": 1.0}}
    corpus = {
        "type": "object",
        "properties": {"corpus": corpus_json_schema()},
        "required": ["corpus"],
        "additionalProperties": False,
    }
    short = [schema(cls, {}) for cls in Corpus.types.values() if cls.shorthand]
    sources = [corpus, *short, *(schema(task, {"task": name}) for name, task in TASKS.items())]

    def extended(source: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
        return {**source, "properties": {**source["properties"], **more}}

    items = {"anyOf": [extended(source, weight) for source in sources]}
    mixture = {
        "type": "object",
        "properties": {**length, "mix": {"type": "array", "minItems": 1, "items": items}},
        "required": ["length", "mix"],
        "additionalProperties": False,
    }
    single = [
        {**extended(source, length), "required": [*source["required"], "length"]}
        for source in sources
    ]
    return {"anyOf": [*single, mixture]}


def _data(value: Any, base: Path, problems: list[Problem]) -> Data | None:
    if not isinstance(value, Mapping):
        problems.append(Problem((), f"found {value!r}, needs a mapping with length and corpus"))
        return None
    options = dict(value)
    length = options.pop("length", None)
    if "length" not in value:
        problems.append(Problem(("length",), "is missing: the tokens of a sequence"))
    elif not isinstance(length, int) or isinstance(length, bool) or length < 1:
        message = f"found {length!r}, needs a whole number of tokens, at least 1"
        problems.append(Problem(("length",), message))
    rows = {name: options.pop(name) for name in ROWS if name in options}
    if rows.get("documents", "across") not in get_args(Documents):
        words = get_args(Documents)
        problems.append(unknown_name(("documents",), "word", rows["documents"], words))
    if not isinstance(rows.get("pack", False), bool):
        problems.append(Problem(("pack",), f"found {rows['pack']!r}, needs true or false"))
    if "mix" not in options:
        source = _source(options, (), base, problems)
        return None if source is None or problems else Data(length=length, mix=(source,), **rows)
    mix = options.pop("mix")
    for option in options:
        problems.append(unknown_name((option,), "key", option, sorted(["length", "mix", *ROWS])))
    if not isinstance(mix, list | tuple) or not mix:
        problems.append(Problem(("mix",), f"found {mix!r}, needs a list of sources"))
        return None
    sources = [_source(item, ("mix", i), base, problems) for i, item in enumerate(mix)]
    if problems:
        return None
    return Data(length=length, mix=tuple(source for source in sources if source), **rows)


def _source(value: Any, at: FieldPath, base: Path, problems: list[Problem]) -> Source | None:
    """One source, or None after adding what is wrong to `problems`."""
    if not isinstance(value, Mapping):
        problems.append(Problem(at, f"found {value!r}, needs a mapping with corpus or task"))
        return None
    options = dict(value)
    weight = options.pop("weight", 1.0) if at else 1.0
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not _is_positive(weight):
        message = f"found {weight!r}, needs a number above 0"
        problems.append(Problem((*at, "weight"), message))
        return None
    short = bool(options.keys() & _shorthands())
    if [("corpus" in options), ("task" in options), short].count(True) != 1:
        found = ", ".join(map(str, options)) or "neither"
        problems.append(Problem(at, f"found {found}, needs exactly one of corpus and task"))
        return None
    try:
        if "task" in options:
            return Source(task=_task(options), weight=float(weight))
        names = ["corpus", "weight"] if at else ["corpus", "length", "mix", "weight", *ROWS]
        return Source(corpus=_corpus(options, base, names), weight=float(weight))
    except DataError as error:
        problems += [problem.under(at) for problem in error.problems]
        return None


def _shorthands() -> set[str]:
    """The options that say, without a `type`, which corpus is meant."""
    return {cls.shorthand for cls in Corpus.types.values() if cls.shorthand}


def _corpus(options: dict[str, Any], base: Path, names: list[str]) -> Corpus:
    """The corpus under "corpus", or the one that the options themselves describe in short."""
    if "corpus" not in options:
        return parse_corpus(options, base)
    problems = [
        unknown_name((str(option),), "key", option, sorted(names))
        for option in options
        if option != "corpus"
    ]
    try:
        corpus = parse_corpus(options["corpus"], base)
    except DataError as error:
        problems += [problem.under(("corpus",)) for problem in error.problems]
    if problems:
        raise DataError(problems)
    return corpus


def _task(options: dict[str, Any]) -> Task:
    name = options.pop("task")
    if not isinstance(name, str) or name not in TASKS:
        raise DataError(unknown_name(("task",), "task", name, sorted(TASKS)))
    return build(TASKS[name], options, f"task {name}")


def _is_positive(weight: float) -> bool:
    return math.isfinite(weight) and weight > 0
