"""What differs between two sweeps beside their numbers: settings, code, and packages.

Stages are compared whether they are finished or not: those of the same section with the same values
on all axes, and the stages that they come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.data.roles import MODEL
from fope_lab.provenance.checkout import Checkout
from fope_lab.report.compare.match_sweeps import Results, axis_value
from fope_lab.report.results.settings import flatten, setting_text
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages import SwapEmbedding
from fope_lab.store import StageFolder, Store
from fope_lab.store.sources import Sources
from fope_lab.sweep.graph import Stage

NOT_SET = "not set"
UNKNOWN = "not recorded"
StagePair = tuple[StageResult, StageResult]


@dataclass(frozen=True)
class SettingChange:
    """A field of a section that has other values, and how many pairs of stages have these."""

    section: str
    field: str
    first: str
    second: str
    stages: int


@dataclass(frozen=True)
class CodeChange:
    """How the code of a section's stages differs: its commits, files and packages.

    A commit has `+` if the code differed from it. `files` are those whose code is only in one of
    the two; None if a stage recorded none. `packages` are such as "torch 2.12.0 → 2.13.0".
    """

    section: str
    first: str
    second: str
    files: tuple[str, ...] | None
    packages: tuple[str, ...]


def pair_stages(results: tuple[Results, Results]) -> list[StagePair]:
    """The pairs of stages of one section with equal values on all axes, after their parents.

    A stage is paired with that of its seed, or else with one of any seed.
    """
    paths: dict[str, dict[str, None]] = {}
    for of in results:
        for result in of.values():
            paths.setdefault(result.stage.section, {}).update(dict.fromkeys(result.stage.axes))
    others: dict[tuple[object, ...], str] = {}
    for key, result in results[1].items():
        place = _place(result, results[1], paths)
        others.setdefault((*place, result.stage.seed), key)
        others.setdefault(place, key)
    found: dict[tuple[str, str], StagePair] = {}
    for key, result in results[0].items():
        place = _place(result, results[0], paths)
        other = others.get((*place, result.stage.seed)) or others.get(place)
        if result.stage.model_spec is not None and other is not None:
            _add(found, key, other, results)
    return list(found.values())


def _place(
    result: StageResult, results: Results, paths: Mapping[str, Iterable[str]]
) -> tuple[object, ...]:
    stage = result.stage
    return stage.section, tuple(axis_value(stage, results, p) for p in paths[stage.section])


def _add(
    found: dict[tuple[str, str], StagePair],
    first: str,
    second: str,
    results: tuple[Results, Results],
) -> None:
    """Add a pair of stages, after the pairs of their parents."""
    if (first, second) in found or first not in results[0] or second not in results[1]:
        return
    one, other = results[0][first], results[1][second]
    for role, key in one.stage.parents.items():
        if role in other.stage.parents:
            _add(found, *_alike((key, other.stage.parents[role]), results), results)
    found[first, second] = one, other


def _alike(keys: tuple[str, str], results: tuple[Results, Results]) -> tuple[str, str]:
    """The keys of two parents; if only one exchanges an embedding, that of its parent instead."""
    exchanging = [_exchanging(key, of) for key, of in zip(keys, results, strict=True)]
    if all(exchanging):
        return keys
    first, second = (
        key if stage is None else stage.parents.get(MODEL, "")
        for key, stage in zip(keys, exchanging, strict=True)
    )
    return first, second


def _exchanging(key: str, results: Results) -> Stage | None:
    """The stage with a key, if it exchanges the embedding for an evaluation and nothing else."""
    stage = results[key].stage if key in results else None
    return stage if stage is not None and stage.section == SwapEmbedding.kind else None


def setting_changes(
    pairs: Iterable[StagePair], results: tuple[Results, Results]
) -> tuple[SettingChange, ...]:
    """The settings in which the stages of pairs differ, by section, field and values."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for one, other in pairs:
        if one.stage.key == other.stage.key:
            continue
        both = [_settings(stage, of) for stage, of in zip((one, other), results, strict=True)]
        for field in dict.fromkeys([*both[0], *both[1]]):
            texts = [setting_text(of[field]) if field in of else NOT_SET for of in both]
            if texts[0] != texts[1]:
                counts[one.stage.section, field, texts[0], texts[1]] += 1
    return tuple(SettingChange(*change, stages) for change, stages in counts.items())


def _settings(result: StageResult, results: Results) -> dict[str, Any]:
    """The settings of a stage by field, with the embedding that an evaluation asks for."""
    settings = dict(flatten(result.stage.config))
    if exchanging := _exchanging(result.stage.parents.get(MODEL, ""), results):
        settings["embedding"] = exchanging.embedding
    return settings


def code_changes(pairs: Iterable[StagePair], stores: tuple[Store, Store]) -> tuple[CodeChange, ...]:
    """How the code differs that made the finished stages of pairs; each difference once."""
    found: dict[CodeChange, None] = {}
    for one, other in pairs:
        if one.folder == other.folder or not (one.state.is_done and other.state.is_done):
            continue
        makers = [StageFolder(result.folder).makers() for result in (one, other)]
        commits = _commits(makers[0]), _commits(makers[1])
        files = _files(makers, stores)
        packages = tuple(_packages(_versions(makers[0]), _versions(makers[1])))
        if commits[0] != commits[1] or files or packages:
            found[CodeChange(one.stage.section, commits[0], commits[1], files, packages)] = None
    return tuple(found)


Makers = Sequence[Mapping[str, Any]]
"""What the attempts at a stage recorded of what made it."""


def _commits(makers: Makers) -> str:
    commits = dict.fromkeys(str(Checkout.recorded(made_by) or UNKNOWN) for made_by in makers)
    return ", ".join(commits) or UNKNOWN


def _files(makers: Sequence[Makers], stores: tuple[Store, Store]) -> tuple[str, ...] | None:
    """The files whose code is only in one of two stages; None if one of them recorded none."""
    codes = []
    for of, store in zip(makers, stores, strict=True):
        read = [Sources(store.root).read(str(made_by.get("source"))) for made_by in of]
        if not read or None in read:
            return None
        codes.append({path: file.code for files in read if files for path, file in files.items()})
    return tuple(
        dict.fromkeys(
            path
            for own, others in ((codes[0], codes[1]), (codes[1], codes[0]))
            for path, code in own.items()
            if code not in others.values()
        )
    )


def _versions(makers: Makers) -> Mapping[str, str]:
    """The versions that the last attempt recorded."""
    versions = makers[0].get("versions") if makers else None
    return versions if isinstance(versions, Mapping) else {}


def _packages(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[str]:
    for name in first:
        if name in second and first[name] != second[name]:
            yield f"{name} {first[name]} → {second[name]}"
