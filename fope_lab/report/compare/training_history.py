"""Whether models may be compared: in what they differ beside their position embedding.

A comparison of embeddings holds for models of the same size that saw as much of the same data in
the same order. What a model saw is read from its chain of trainings, back to the first one; a
checkpoint that is given as a folder or by its name ends the chain, and what it was trained on is
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.labels import corpus_label, label, tokenizer_label
from fope_lab.sweep.graph import Stage

MOST_PARAMETERS = 0.01
"""How many more parameters than another a model may have, as a share, and still be as large."""

_IN_WORDS = {"shown": "", "length": "lengths ", "tokenizer": "tokenizers "}

Kind = Literal["parameters", "tokens", "data", "order", "start"]


@dataclass(frozen=True)
class Difference:
    """In what two models differ, and how, in words."""

    kind: Kind
    words: str


@dataclass(frozen=True)
class Training:
    """What one training of a chain read. `sources` are descriptions of the corpora and tasks that
    are equal where these are, `shown` the same in words."""

    sources: tuple[Any, ...]
    shown: str
    tokenizer: str
    length: int
    batch_tokens: int
    seed: int | None
    tokens: int


@dataclass(frozen=True)
class TrainingHistory:
    """What became of a model: its parameters, the checkpoint that it came from (None: trained from
    scratch), and its trainings, the first one first."""

    parameters: int | None
    start: str | None
    trainings: tuple[Training, ...]

    @cached_property
    def tokens(self) -> int:
        """Tokens of all known trainings."""
        return sum(training.tokens for training in self.trainings)


def differences(readings: Mapping[str, StageResult], one: str, other: str) -> tuple[str, ...]:
    """In what the models of the stages with the keys `one` and `other` differ beside their position
    embedding, the first one's before the second's: empty if they may be compared.

    `readings` are those of the plan, by key. Stages without a model differ in nothing.
    """
    found = compare(read_history(readings, one), read_history(readings, other))
    return tuple(difference.words for difference in found)


def read_history(readings: Mapping[str, StageResult], key: str) -> TrainingHistory:
    """The chain of trainings that the model of a stage comes from."""
    size = readings[key].stage.cost.parameters
    trainings: list[Training] = []
    at: str | None = key
    start = None
    while at is not None:
        stage = readings[at].stage
        if stage.spec.trains:
            trainings.insert(0, _training(stage))
        at = stage.parents.get("from")
        if at is None:
            start = stage.checkpoints.get("from")
        elif at not in readings:
            at, start = None, at
    return TrainingHistory(size.total if size else None, start, tuple(trainings))


def compare(one: TrainingHistory, other: TrainingHistory) -> tuple[Difference, ...]:
    """What `differences` says, with what each is about."""
    found = [
        _parameters(one, other),
        _start(one, other),
        _tokens(one, other),
        _data(one, other),
        _order(one, other),
    ]
    return tuple(difference for difference in found if difference is not None)


def _parameters(one: TrainingHistory, other: TrainingHistory) -> Difference | None:
    if one.parameters is None or other.parameters is None:
        return None
    larger, smaller = max(one.parameters, other.parameters), min(one.parameters, other.parameters)
    if larger <= smaller * (1 + MOST_PARAMETERS):
        return None
    percent = 100 * (one.parameters / other.parameters - 1)
    return Difference("parameters", f"parameters ({percent:+.1f} %)")


def _start(one: TrainingHistory, other: TrainingHistory) -> Difference | None:
    if one.start == other.start:
        return None
    words = _each(start or "from scratch" for start in (one.start, other.start))
    return Difference("start", f"start ({words}; what a checkpoint was trained on is not known)")


def _tokens(one: TrainingHistory, other: TrainingHistory) -> Difference | None:
    if one.tokens == other.tokens:
        return None
    return Difference("tokens", f"tokens ({_each(f'{h.tokens:,}' for h in (one, other))})")


def _data(one: TrainingHistory, other: TrainingHistory) -> Difference | None:
    parts = []
    for name in ("shown", "length", "tokenizer"):
        chains = [_chain(getattr(each, name) for each in h.trainings) for h in (one, other)]
        if chains[0] != chains[1]:
            parts.append(f"{_IN_WORDS[name]}{_each(chains)}")
    sources = [
        [source for source, _ in groupby(t.sources for t in h.trainings)] for h in (one, other)
    ]
    if not parts and sources[0] != sources[1]:
        parts = ["other content or options under the same names"]
    return Difference("data", f"data ({'; '.join(parts)})") if parts else None


def _order(one: TrainingHistory, other: TrainingHistory) -> Difference | None:
    """Of the trainings that both have: whether they drew the same rows at each step."""
    pairs = list(zip(one.trainings, other.trainings, strict=False))
    parts = []
    if any(a.seed != b.seed for a, b in pairs):
        parts.append(f"seeds {_each(_chain(p[i].seed for p in pairs) for i in (0, 1))}")
    if any(a.batch_tokens != b.batch_tokens for a, b in pairs):
        sizes = _each(_chain(f"{p[i].batch_tokens:,}" for p in pairs) for i in (0, 1))
        parts.append(f"batches of {sizes} tokens")
    return Difference("order", f"order ({'; '.join(parts)})") if parts else None


def _each(words: Iterable[str]) -> str:
    return " and ".join(words)


def _chain(values: Iterable[object]) -> str:
    """Of each training in turn; runs of one value as that value."""
    return " then ".join(str(value) for value, _ in groupby(values)) or "none"


def _training(stage: Stage) -> Training:
    spec: Any = stage.spec
    data, train = spec.data, spec.train
    total = sum(source.weight for source in data.mix)
    sources, shown = [], []
    for index, source in enumerate(data.mix):
        if source.task is not None:
            given: Any = source.task.canonical()
            options = {name: value for name, value in given.items() if name != "task"}
            name = label({"type": source.task.task, **options})
        else:
            # the key of what prepares it stands for its content, too
            given, name = stage.parents.get(f"data.{index}"), corpus_label(source.corpus)
        share = source.weight / total
        sources.append((given, round(share, 9)))
        shown.append(name if len(data.mix) == 1 else f"{100 * share:.3g} % {name}")
    return Training(
        sources=(*sources, data.documents, data.pack),
        shown=" + ".join(shown),
        tokenizer=tokenizer_label(stage.model_spec.tokenizer) if stage.model_spec else "",
        length=data.length,
        batch_tokens=train.batch_tokens,
        seed=stage.seed,
        tokens=stage.cost.tokens or 0,
    )
