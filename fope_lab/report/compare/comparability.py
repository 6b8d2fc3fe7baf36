"""Are the models of a table comparable, and in what do they differ apart from their embedding?

A comparison of embeddings is fair between models of the same size that read the same amount of the
same data in the same order. What a model read follows from its chain of trainings, back to the
first one. A checkpoint given as a folder or by name ends the chain: its training data is unknown.

The series of a panel are compared seed by seed. Most of their models usually agree in size, data
and order; a series that does not agree is marked, and a note names the differences. A difference
that an axis of the sweep causes is marked too, and the note names the axis: a model trained on
twice the tokens has an advantage even if the sweep intends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

from fope_lab.data.roles import MODEL, text_role
from fope_lab.report.results.axes import short_names
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.labels import corpus_label, is_embedding, label, tokenizer_label
from fope_lab.sweep.graph import Stage

PARAMETER_TOLERANCE = 0.01
"""The relative difference in parameters up to which two models count as equally large."""

_PREFIXES = {"shown": "", "length": "lengths ", "tokenizer": "tokenizers "}

Kind = Literal["parameters", "tokens", "data", "order", "start"]

MARK = "‡"
MOST_GROUPS = 4
CAUSES: Mapping[Kind, frozenset[str]] = {
    "parameters": frozenset({"model", "from"}),
    "tokens": frozenset({"train", "from"}),
    "data": frozenset({"data", "tokenizer", "from"}),
    "order": frozenset({"train", "data", "from"}),
    "start": frozenset({"from"}),
}
"""The fields of a stage that can cause each kind of difference."""


@dataclass(frozen=True)
class Mismatch:
    """A difference between two models: its kind, and the two values in words."""

    kind: Kind
    words: str


@dataclass(frozen=True)
class Training:
    """What one training of a chain read.

    `sources` describe the corpora and tasks, and are equal for equal data; `shown` puts them in
    words.
    """

    sources: tuple[Any, ...]
    shown: str
    tokenizer: str
    length: int
    batch_tokens: int
    seed: int | None
    tokens: int


@dataclass(frozen=True)
class TrainingHistory:
    """A model's parameters, its initial checkpoint, and its trainings in order.

    `start` is None for a model trained from scratch.
    """

    parameters: int | None
    start: str | None
    trainings: tuple[Training, ...]

    @cached_property
    def tokens(self) -> int:
        """The tokens of all known trainings."""
        return sum(training.tokens for training in self.trainings)


def differences(results: Mapping[str, StageResult], key: str, other: str) -> tuple[str, ...]:
    """The differences between the models of two stages, apart from their embedding, in words.

    `results` are those of the plan, by key. In each difference the value of `key` comes first. The
    tuple is empty if the models can be compared, and for stages without a model.
    """
    found = compare(read_history(results, key), read_history(results, other))
    return tuple(difference.words for difference in found)


def read_history(results: Mapping[str, StageResult], key: str) -> TrainingHistory:
    """The chain of trainings that led to the model of a stage."""
    size = results[key].stage.cost.parameters
    trainings: list[Training] = []
    at: str | None = key
    start = None
    while at is not None:
        stage = results[at].stage
        if stage.spec.trains:
            trainings.insert(0, _training(stage))
        at = results[at].model_parent
        if at is None:
            start = stage.checkpoints.get(MODEL)
        elif at not in results:
            at, start = None, at
    return TrainingHistory(size.total if size else None, start, tuple(trainings))


def compare(history: TrainingHistory, other: TrainingHistory) -> tuple[Mismatch, ...]:
    """The differences between two histories; empty if the models can be compared."""
    return tuple(_differences(history, other))


def _differences(history: TrainingHistory, other: TrainingHistory) -> Iterator[Mismatch]:
    both = (history, other)
    if history.parameters is not None and other.parameters is not None:
        smaller, larger = sorted((history.parameters, other.parameters))
        if larger > smaller * (1 + PARAMETER_TOLERANCE):
            percent = 100 * (history.parameters / other.parameters - 1)
            yield Mismatch("parameters", f"parameters ({percent:+.1f} %)")
    if history.start != other.start:
        words = _both(h.start or "from scratch" for h in both)
        yield Mismatch("start", f"start ({words}; the training data of a checkpoint is unknown)")
    if history.tokens != other.tokens:
        yield Mismatch("tokens", f"tokens ({_both(f'{h.tokens:,}' for h in both)})")
    kinds: tuple[tuple[Kind, list[str]], ...] = (
        ("data", _data(history, other)),
        ("order", _order(history, other)),
    )
    for kind, parts in kinds:
        if parts:
            yield Mismatch(kind, f"{kind} ({'; '.join(parts)})")


def _data(history: TrainingHistory, other: TrainingHistory) -> list[str]:
    """How the texts, lengths and tokenizers differ that two models read."""
    both = (history, other)
    parts = []
    for name, prefix in _PREFIXES.items():
        chains = [_chain(getattr(training, name) for training in h.trainings) for h in both]
        if chains[0] != chains[1]:
            parts.append(f"{prefix}{_both(chains)}")
    sources = [[source for source, _ in groupby(t.sources for t in h.trainings)] for h in both]
    if not parts and sources[0] != sources[1]:
        return ["other content or options under the same names"]
    return parts


def _order(history: TrainingHistory, other: TrainingHistory) -> list[str]:
    """How the rows differ that the trainings of both models drew at each step."""
    pairs = list(zip(history.trainings, other.trainings, strict=False))
    parts = []
    if any(a.seed != b.seed for a, b in pairs):
        parts.append(f"seeds {_both(_chain(p[i].seed for p in pairs) for i in (0, 1))}")
    if any(a.batch_tokens != b.batch_tokens for a, b in pairs):
        sizes = _both(_chain(f"{p[i].batch_tokens:,}" for p in pairs) for i in (0, 1))
        parts.append(f"batches of {sizes} tokens")
    return parts


def _both(words: Iterable[str]) -> str:
    return " and ".join(words)


def _chain(values: Iterable[object]) -> str:
    """The values of the trainings in order; repeated values appear once."""
    return " then ".join(str(value) for value, _ in groupby(values)) or "none"


def _training(stage: Stage) -> Training:
    spec: Any = stage.spec
    data, train = spec.data, spec.train
    total = sum(source.weight for source in data.mix)
    sources, shown = [], []
    for index, source in enumerate(data.mix):
        if source.task is not None:
            identity: Any = source.task.canonical()
            options = {name: value for name, value in identity.items() if name != "task"}
            name = label({"type": source.task.task, **options})
        else:
            # The key of the stage that prepares a corpus identifies its content too.
            identity = stage.parents.get(text_role(index))
            name = corpus_label(source.corpus)
        share = source.weight / total
        sources.append((identity, round(share, 9)))
        by_tokens, by_epochs = f"{100 * share:.3g} %", f"{source.weight:g} epochs of"
        part = by_tokens if data.weights == "tokens" else by_epochs
        shown.append(name if len(data.mix) == 1 else f"{part} {name}")
    return Training(
        sources=(*sources, data.documents, data.pack, data.weights),
        shown=" + ".join(shown),
        tokenizer=tokenizer_label(stage.model_spec.tokenizer) if stage.model_spec else "",
        length=data.length,
        batch_tokens=train.batch_tokens,
        seed=stage.seed,
        tokens=stage.cost.tokens or 0,
    )


@dataclass(frozen=True)
class ComparabilityMarks:
    """The marked series of a group.

    `differences` maps the key of each marked series to its differences in words; `note` explains
    all marks below a table or figure, and is None if no series is marked.
    """

    differences: Mapping[str, tuple[str, ...]]
    note: str | None


def read_histories(results: Iterable[StageResult]) -> dict[str, TrainingHistory]:
    """The training history of every stage's model, by the stage's key."""
    by_key = {result.stage.key: result for result in results}
    return {key: read_history(by_key, key) for key in by_key}


def comparability_marks(
    group: MetricGroup, histories: Mapping[str, TrainingHistory]
) -> ComparabilityMarks:
    """Compare the series of each panel; a stage without a history agrees with any other."""
    marked: dict[str, tuple[str, ...]] = {}
    labels: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    names = short_names(list(dict.fromkeys(path for s in group.series for path in _axes(s))))
    for members in group.panels.values():
        reference, others = _split(members, histories)
        for series, differences in others:
            words = tuple(_words(d, series, reference, names) for d in differences)
            marked[series.key] = words
            labels.setdefault((reference.label, words), []).append(series.name)
    return ComparabilityMarks(marked, _note(labels) if labels else None)


def _split(
    members: Sequence[Series], histories: Mapping[str, TrainingHistory]
) -> tuple[Series, list[tuple[Series, tuple[Mismatch, ...]]]]:
    """The first series of the largest group that agrees, and all series that differ from it."""
    agreeing: list[list[Series]] = []
    for series in members:
        same = next((g for g in agreeing if not _series_mismatches(series, g[0], histories)), None)
        if same is None:
            agreeing.append([series])
        else:
            same.append(series)
    reference = max(agreeing, key=len)[0]
    compared = [(series, _series_mismatches(series, reference, histories)) for series in members]
    return reference, [(series, differences) for series, differences in compared if differences]


def _series_mismatches(
    series: Series, other: Series, histories: Mapping[str, TrainingHistory]
) -> tuple[Mismatch, ...]:
    """The differences under the first seed whose models differ."""
    keys, other_keys = _keys(series), _keys(other)
    for seed in keys.keys() & other_keys.keys():
        if keys[seed] in histories and other_keys[seed] in histories:
            differences = compare(histories[keys[seed]], histories[other_keys[seed]])
            if differences:
                return differences
    return ()


def _keys(series: Series) -> dict[int | None, str]:
    """The key of each seed's stage, which all cells of a series share."""
    cell = next(iter(series.cells.values()))
    missing = {gap.seed: gap.key for gap in cell.missing}
    return missing | {value.seed: value.key for value in cell.values}


def _axes(series: Series) -> Mapping[str, object]:
    return next(iter(series.cells.values())).axes


def _words(
    difference: Mismatch, series: Series, reference: Series, names: Mapping[str, str]
) -> str:
    """The difference in words, with the axes that differ between two series and can cause it."""
    axes, reference_axes = _axes(series), _axes(reference)
    causes = [
        names[path]
        for path in names
        if not is_embedding(path)
        and label(axes.get(path)) != label(reference_axes.get(path))
        and path.split(".")[1] in CAUSES[difference.kind]
    ]
    return difference.words + (f", set by {' and '.join(causes)}" if causes else "")


def _note(labels: Mapping[tuple[str, tuple[str, ...]], Sequence[str]]) -> str:
    parts = [
        f"{', '.join(rows)} differ{'s' * (len(rows) == 1)} from {reference} in {'; '.join(words)}"
        for (reference, words), rows in list(labels.items())[:MOST_GROUPS]
    ]
    rest = len(labels) - MOST_GROUPS
    more = f"; and {rest} more" if rest > 0 else ""
    return f"{MARK} These models differ in more than what is compared: {'; '.join(parts)}{more}."
