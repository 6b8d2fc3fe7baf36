"""What a training reads, as a sweep file says it: a length and a mixture of corpora and tasks.

`{corpus: c4, length: 512}`, `{files: GLOB, length: 512}`, or
`{length: 64, mix: [{corpus: python-docs, weight: 0.7}, {task: passkey, weight: 0.3}]}`; beside
them, how documents become rows: `documents: within`, `pack: true`.
Nothing here needs torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Len

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import Parsed
from fope_lab.config.named_types import given_options
from fope_lab.config.options import Entry, Option, Registry, entry_of
from fope_lab.config.problems import ConfigError, FieldPath, Problem, collecting, shown
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.corpora.registry import CORPORA, corpus_json_schema, parse_corpus
from fope_lab.data.problems import DataError
from fope_lab.data.tasks.base import TASK_TYPES, Task

TASKS: Registry[Task] = Registry("task", TASK_TYPES, key="task", error=DataError)
"""Every task to train on by name."""

CorpusOption = Annotated[Corpus, Parsed(parse_corpus, corpus_json_schema)]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One part of a mixture: exactly one of a corpus and a task. Weights need not sum to 1."""

    corpus: CorpusOption | None = None
    task: Task | None = None
    weight: Annotated[
        float,
        Interval(gt=0),
        Doc("The source's share, relative to the others: of the tokens, or as `weights` says."),
    ] = 1.0

    def canonical(self) -> dict[str, Any]:
        """The shortest description; parsing it gives the source back."""
        options = given_options(self)
        return {**options.pop("task", {}), **options}


def parse_source(value: Any, base: Path) -> Source:
    source, options = _source_and_options(value, base, WEIGHT)
    return dataclasses.replace(source, **options)


def source_json_schema() -> dict[str, Any]:
    return {"anyOf": list(_source_schemas(WEIGHT))}


@dataclass(frozen=True, kw_only=True)
class Data:
    """Sequences of `length` tokens from a mixture.

    Text runs on over the ends of its documents; with `documents` within, a token sees nothing of
    the documents before its own, and the first token of each is not predicted. With `pack`, a row
    holds as many supervised examples as fit, which see nothing of each other, and not one.
    """

    length: Annotated[int, Interval(ge=1), Doc("The number of tokens in a sequence.")]
    mix: Annotated[
        tuple[Annotated[Source, Parsed(parse_source, source_json_schema, "sources")], ...],
        Len(1),
        Doc("The sources of the sequences."),
    ]
    documents: Annotated[
        Literal["across", "within"],
        Doc("Of text: whether a token sees the documents before its own (across) or not (within)."),
    ] = "across"
    weights: Annotated[
        Literal["tokens", "epochs"],
        Doc(
            "What the weights of `mix` are shares of. tokens: the tokens that are read. epochs: the"
            " source itself, so that with weights 1 and 0.5 the first is read through once while"
            " half of the second is read."
        ),
    ] = "tokens"
    pack: Annotated[
        bool, Doc("Of pairs and chats: whether a row holds several, which do not see each other.")
    ] = False

    def __post_init__(self) -> None:
        if self.weights == "epochs" and any(source.task for source in self.mix):
            raise ValueError("weights: epochs needs corpora alone, because a task has no end")

    def canonical(self) -> dict[str, Any]:
        """The shortest description; parsing it gives the data back."""
        return given_options(self)


DATA = entry_of(Data, "data")


def _part(entry: Entry[Any], *names: str) -> Entry[dict[str, Any]]:
    options = {name: entry.options[name] for name in names}
    return dataclasses.replace(entry, options=options, make=dict)


ROWS = dataclasses.replace(_part(DATA, "length", "documents", "pack"), beside=("mix",))
WEIGHT = _part(entry_of(Source, "a source"), "weight")
NAMED_CORPUS = dataclasses.replace(
    entry_of(Source, "a source"),
    description="A corpus by its name or its options.",
    options={"corpus": Option(CorpusOption, dataclasses.MISSING)},
)
"""A source that is a corpus, under the key `corpus`."""


def parse_data(value: Any, base: Path, at: FieldPath = ()) -> Data:
    """The data that a description stands for; `base` is as in parse_corpus. Raises DataError
    holding every problem found."""
    try:
        if not isinstance(value, Mapping):
            needs = "a mapping with length and corpus"
            raise ConfigError(Problem((), f"found {shown(value)}", needs))
        if "mix" in value:
            return DATA.read(value, base)
        source, options = _source_and_options(value, base, ROWS)
        return Data(mix=(source,), **options)
    except ConfigError as error:
        raise DataError(error.problems, at) from error


def data_json_schema() -> dict[str, Any]:
    return {"anyOf": [*_source_schemas(ROWS), DATA.json_schema()]}


def _source_and_options(
    value: Any, base: Path, around: Entry[dict[str, Any]]
) -> tuple[Source, dict[str, Any]]:
    """The source that a mapping describes, and the options that stand around it."""
    if not isinstance(value, Mapping):
        raise ConfigError(Problem((), f"found {shown(value)}", "a mapping with corpus or task"))
    own = {name: item for name, item in value.items() if name in around.options}
    rest = {name: item for name, item in value.items() if name not in own}
    problems: list[Problem] = []
    with collecting(problems):
        options = around.values(own)
    with collecting(problems):
        source = _source(rest, base, around)
    if problems:
        raise ConfigError(problems)
    return source, options


def _source(given: Mapping[str, Any], base: Path, around: Entry[dict[str, Any]]) -> Source:
    beside = (*around.options, *around.beside)
    short = bool(given.keys() & CORPORA.shorthands.keys())
    if ["corpus" in given, "task" in given, short].count(True) != 1:
        found = ", ".join(map(str, given)) or "neither"
        raise ConfigError(Problem((), f"found {found}", "exactly one of corpus and task"))
    if "corpus" in given:
        entry = dataclasses.replace(NAMED_CORPUS, title=around.title, beside=beside)
        return entry.read(given, base)
    if "task" in given:
        return Source(task=TASKS.parse(given, base, beside=beside))
    return Source(corpus=CORPORA.parse(given, base, beside=beside).resolved(base))


def _source_schemas(around: Entry[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    entries: list[tuple[Entry[Any], dict[str, str]]] = [
        (NAMED_CORPUS, {}),
        *((CORPORA.entries[name], {}) for name in CORPORA.shorthands.values()),
        *((entry, {"task": name}) for name, entry in TASKS.entries.items()),
    ]
    for entry, fixed in entries:
        whole = dataclasses.replace(entry, options={**entry.options, **around.options})
        yield whole.json_schema(fixed)
