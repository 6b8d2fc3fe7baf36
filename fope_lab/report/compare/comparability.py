"""Are the models of a table comparable, and in what do they differ apart from their embedding?

A comparison of embeddings is fair between models of the same size that read the same amount of the
same data in the same order. What a model read follows from its chain of trainings, back to the
first one. A checkpoint given as a folder or by name ends the chain: its training data is unknown.

The series of a panel are compared seed by seed. Most of their models usually agree in size, data
and order; a series that does not agree is marked, and a note names the differences. A difference
that an axis of the sweep causes is marked too: a model trained on twice the tokens has an advantage
even if the sweep intends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from fope_lab.config.roles import MODEL, text_role
from fope_lab.report.results.cells import StageResult
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.stages.labels import corpus_label, label, tokenizer_label
from fope_lab.sweep.graph import Stage

PARAMETER_TOLERANCE = 0.01
"""The relative difference in parameters up to which two models count as equally large."""
MARK = "‡"
MOST_GROUPS = 4
_PREFIXES = {"shown": "", "length": "lengths ", "tokenizer": "tokenizers "}


@dataclass(frozen=True)
class Training:
    """What one training of a chain read. `sources` are equal for equal data; `shown` puts them in
    words."""

    sources: tuple[Any, ...]
    shown: str
    tokenizer: str
    length: int
    batch_tokens: int
    seed: int | None
    tokens: int

    @classmethod
    def of(cls, stage: Stage) -> Training:
        """What a training stage reads."""
        spec: Any = stage.spec
        data = spec.data
        total = sum(source.weight for source in data.mix)
        sources: list[Any] = [data.documents, data.pack, data.weights]
        shown = []
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
        return cls(
            sources=tuple(sources),
            shown=" + ".join(shown),
            tokenizer=tokenizer_label(stage.model_spec.tokenizer) if stage.model_spec else "",
            length=data.length,
            batch_tokens=spec.train.batch_tokens,
            seed=stage.seed,
            tokens=stage.cost.tokens or 0,
        )


@dataclass(frozen=True)
class TrainingHistory:
    """A model's parameters, its initial checkpoint, and its trainings in order. `start` is None for
    a model trained from scratch."""

    parameters: int | None
    start: str | None
    trainings: tuple[Training, ...]

    def of_each(self, name: str) -> list[Any]:
        """A fact of the trainings in order; repeated values appear once."""
        return [value for value, _ in groupby(getattr(t, name) for t in self.trainings)]


def differences(results: Mapping[str, StageResult], key: str, other: str) -> tuple[str, ...]:
    """The differences between the models of two stages, apart from their embedding, in words.

    `results` are those of the plan, by key. In each difference the value of `key` comes first. The
    tuple is empty if the models can be compared, and for stages without a model.
    """
    return compare(read_history(results, key), read_history(results, other))


def read_history(results: Mapping[str, StageResult], key: str) -> TrainingHistory:
    """The chain of trainings that led to the model of a stage."""
    size = results[key].stage.cost.parameters
    trainings: list[Training] = []
    at: str | None = key
    start = None
    while at is not None:
        stage = results[at].stage
        if stage.spec.trains:
            trainings.insert(0, Training.of(stage))
        at = results[at].model_parent
        if at is None:
            start = stage.checkpoints.get(MODEL)
        elif at not in results:
            at, start = None, at
    return TrainingHistory(size.total if size else None, start, tuple(trainings))


def compare(history: TrainingHistory, other: TrainingHistory) -> tuple[str, ...]:
    """The differences between two histories, in words; empty if the models can be compared."""
    return tuple(_differences(history, other))


def _differences(history: TrainingHistory, other: TrainingHistory) -> Iterator[str]:
    both = (history, other)
    if history.parameters is not None and other.parameters is not None:
        smaller, larger = sorted((history.parameters, other.parameters))
        if larger > smaller * (1 + PARAMETER_TOLERANCE):
            yield f"parameters ({100 * (history.parameters / other.parameters - 1):+.1f} %)"
    if history.start != other.start:
        words = " and ".join(h.start or "from scratch" for h in both)
        yield f"start ({words}; the training data of a checkpoint is unknown)"
    tokens = [sum(training.tokens for training in h.trainings) for h in both]
    if tokens[0] != tokens[1]:
        yield f"tokens ({tokens[0]:,} and {tokens[1]:,})"
    parts = [
        f"{prefix}{' and '.join(map(_chain, values))}"
        for name, prefix in _PREFIXES.items()
        if (values := [h.of_each(name) for h in both]) and values[0] != values[1]
    ]
    if not parts and history.of_each("sources") != other.of_each("sources"):
        parts = ["other content or options under the same names"]
    if parts:
        yield f"data ({'; '.join(parts)})"
    if parts := [*_order(history, other)]:
        yield f"order ({'; '.join(parts)})"


def _order(history: TrainingHistory, other: TrainingHistory) -> Iterator[str]:
    """How the rows differ that the trainings of both models drew at each step."""
    steps = min(len(history.trainings), len(other.trainings))
    both = (history.trainings[:steps], other.trainings[:steps])
    seeds = [[t.seed for t in chain] for chain in both]
    if seeds[0] != seeds[1]:
        yield f"seeds {' and '.join(map(_chain, seeds))}"
    sizes = [[f"{t.batch_tokens:,}" for t in chain] for chain in both]
    if sizes[0] != sizes[1]:
        yield f"batches of {' and '.join(map(_chain, sizes))} tokens"


def _chain(values: Iterable[object]) -> str:
    """The values of the trainings in order; repeated values appear once."""
    return " then ".join(str(value) for value, _ in groupby(values)) or "none"


def mark_unequal(group: MetricGroup, histories: Mapping[str, TrainingHistory]) -> MetricGroup:
    """The group, in which each series says in what it differs from those of its panel. `histories`
    are by the stages' keys. A stage without one agrees with any other."""
    marked: dict[int, tuple[str, ...]] = {}
    rows: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for members in group.panels.values():
        reference = _reference(members, histories)
        for series in members:
            if words := _mismatches(series, reference, histories):
                marked[id(series)] = words
                rows.setdefault((reference.label, words), []).append(series.name)
    if not marked:
        return group
    compared = tuple(replace(one, unequal=marked.get(id(one), ())) for one in group.series)
    return replace(group, series=compared, unequal=_note(rows))


def _reference(members: Sequence[Series], histories: Mapping[str, TrainingHistory]) -> Series:
    """The first series of the largest group that agrees."""
    agreeing: list[list[Series]] = []
    for series in members:
        same = (of for of in agreeing if not _mismatches(series, of[0], histories))
        if (found := next(same, None)) is None:
            agreeing.append([series])
        else:
            found.append(series)
    return max(agreeing, key=len)[0]


def _mismatches(
    series: Series, other: Series, histories: Mapping[str, TrainingHistory]
) -> tuple[str, ...]:
    """The differences under the first seed whose models differ."""
    keys, others = series.first.seeds, other.first.seeds
    for seed in keys.keys() & others.keys():
        one, two = histories.get(keys[seed]), histories.get(others[seed])
        if one is not None and two is not None and (found := compare(one, two)):
            return found
    return ()


def _note(marked: Mapping[tuple[str, tuple[str, ...]], Sequence[str]]) -> str:
    parts = [
        f"{', '.join(rows)} differ{'s' * (len(rows) == 1)} from {reference} in {'; '.join(words)}"
        for (reference, words), rows in list(marked.items())[:MOST_GROUPS]
    ]
    rest = len(marked) - MOST_GROUPS
    more = f"; and {rest} more" if rest > 0 else ""
    return f"{MARK} These models differ in more than what is compared: {'; '.join(parts)}{more}."
