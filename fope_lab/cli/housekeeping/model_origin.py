"""How the model of a checkpoint came about, as the store recorded it, for its model card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fope_lab.cli.housekeeping.known_stages import KnownStage, known_stages, parents_of
from fope_lab.config.roles import MODEL
from fope_lab.model.export.card import Origin, Score, TrainingFacts
from fope_lab.model.hub import hub_name
from fope_lab.stages.labels import label
from fope_lab.stages.metric import DamagedResultError, ResultRecord
from fope_lab.store.checkout import Checkout
from fope_lab.store.folder import StageFolder
from fope_lab.store.lineage import lineage_of
from fope_lab.store.root import Store

SETTINGS = ("tokens", "batch_tokens", "learning_rate", "schedule", "precision")
"""The settings under `train` that a card shows."""


def origin_of(checkpoint: str | Path, store: Store) -> Origin:
    """Read what is recorded about the checkpoint or stage folder `checkpoint`, or a hub name.

    Sweeps and evaluations are those that `store` has recorded. The origin of a folder that no stage
    wrote is empty.
    """
    if name := hub_name(checkpoint):
        return Origin(base_model=name.repository)
    folder = _stage_of(Path(checkpoint))
    if folder is None:
        return Origin()
    known = known_stages(store)
    folders = lineage_of(folder)
    first = {**_config(folders[0]), **parents_of(folders[0])}
    base = hub_name(str(first.get(MODEL, "")))
    return Origin(
        trainings=[_facts(each, known) for each in folders],
        base_model=base.repository if base else None,
        datasets=list(dict.fromkeys(name for each in folders for name in _datasets(each))),
        scores=list(_scores(folder, known)),
    )


def _stage_of(path: Path) -> StageFolder | None:
    """The stage's folder that `path` is, or whose checkpoint `path` is, or None."""
    folders = (StageFolder(each.absolute()) for each in (path, path.parent.parent))
    return next((folder for folder in folders if folder.request() is not None), None)


def _facts(folder: StageFolder, known: Sequence[KnownStage]) -> TrainingFacts:
    config, attempts = _config(folder), folder.attempts
    records = filter(None, map(attempts.record, range(1, attempts.newest_token() + 1)))
    made_by = [record.details.get("made_by") or {} for record in records]
    names = [each for each in known if each.key == folder.path.name and each.sweep]
    return TrainingFacts(
        kind=str(config.get("kind", folder.path.parent.name)),
        label=names[0].label if names else "",
        key=folder.path.name,
        sweeps=list(dict.fromkeys(each.sweep for each in names)),
        commit=_listed(map(Checkout.recorded, made_by)),
        version=_listed((each.get("versions") or {}).get("fope-lab") for each in made_by),
        settings=dict(_settings(config)),
    )


def _listed(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))


def _settings(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    data, train = config.get("data"), config.get("train")
    if config.get("embedding") is not None:
        yield "embedding", f"`{label(config['embedding'])}`"
    if isinstance(data, Mapping):
        yield "data", ", ".join(map(_source, data.get("mix") or ()))
        yield "length, tokens", label(data.get("length"))
    if isinstance(train, Mapping):
        yield from (
            (name.replace("_", " "), label(train[name])) for name in SETTINGS if name in train
        )
    if config.get("seed") is not None:
        yield "seed", label(config["seed"])


def _source(source: Mapping[str, Any]) -> str:
    """A part of a mixture as text. Of local files it has the names, without their folders."""
    corpus, weight = source.get("corpus"), source.get("weight", 1.0)
    if isinstance(corpus, Mapping) and "files" in corpus:
        files = corpus["files"] if isinstance(corpus["files"], list) else [corpus["files"]]
        corpus = {**corpus, "files": [Path(str(file)).name for file in files]}
    name = source.get("task") or label(corpus)
    return f"{name} (weight {weight:g})" if weight != 1.0 else str(name)


def _datasets(folder: StageFolder) -> Iterator[str]:
    data = _config(folder).get("data")
    for source in (data.get("mix") or ()) if isinstance(data, Mapping) else ():
        corpus = source.get("corpus")
        if isinstance(corpus, Mapping) and "dataset" in corpus:
            yield str(corpus["dataset"])


def _scores(folder: StageFolder, known: Sequence[KnownStage]) -> Iterator[Score]:
    """Yield what the store's evaluations of this stage's final checkpoint measured."""
    seen = set()
    for stage in known:
        if stage.key in seen or "train" in _config(stage.folder):
            continue
        seen.add(stage.key)
        result = stage.folder.result()
        if parents_of(stage.folder).get(MODEL) != folder.path.name:
            continue
        try:
            measured = ResultRecord.parse(result).metrics
        except DamagedResultError:  # or not finished
            continue
        for one in measured:
            yield Score(
                metric=one.name, x=one.x, value=one.value, interval=one.interval, stage=stage.title
            )


def _config(folder: StageFolder) -> Mapping[str, Any]:
    config = (folder.request() or {}).get("config")
    return config if isinstance(config, Mapping) else {}
