"""Why a stage runs again: the finished stage that is most like it, and what differs."""

from __future__ import annotations

import contextlib
import functools
import heapq
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml

from fope_lab.config.problems import FieldPath, format_path
from fope_lab.data.roles import MODEL, TOKENIZER, text_role, validation_role
from fope_lab.embeddings import EmbeddingError, preset_of
from fope_lab.stages.key import hashed_fields
from fope_lab.stages.labels import label
from fope_lab.store import StageFolder, Status, Store
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import NearestStage, Plan, is_ready

FEW = 5
"""How many differences a near stage may have."""
MOST_PAIRS, OF_A_STAGE = 50_000, 200
"""The most pairs of stages that are compared, so that a large plan is quick; and what each stage
costs beside its pairs, counted as pairs."""
EXACTLY = 5
"""How many of the stages with the most equal lines are compared in detail."""
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_Finished = tuple[Path, frozenset[str]]
"""The folder of a finished stage, and the lines of its stage.yaml."""


def with_nearest(plans: Sequence[Plan], store: Store) -> list[Plan]:
    """Return the plans, in which stages that the store lacks name its most similar stage.

    Stages that wait for others are left out: they run because of those. Stages of the plans are
    not named: of those, people know how they differ.
    """
    stages = {stage.key: stage for planned in plans for stage in planned.sweep.stages}
    states = {key: state for planned in plans for key, state in planned.states.items()}
    finished = functools.cache(lambda kind: _read(store.root / kind, without=stages))
    nearest: dict[str, NearestStage] = {}
    pairs = 0
    for stage in stages.values():
        if states[stage.key].status is not Status.NOT_STARTED or not is_ready(stage, states):
            continue
        pairs += len(finished(stage.kind)) + OF_A_STAGE
        if pairs > MOST_PAIRS:
            break
        if near := _nearest(stage, finished(stage.kind)):
            nearest[stage.key] = near
    return [_with_reasons(planned, nearest) for planned in plans]


def _with_reasons(planned: Plan, nearest: dict[str, NearestStage]) -> Plan:
    own = {key: near for key, near in nearest.items() if key in planned.states}
    states = dict(planned.states)
    for key, near in own.items():
        first, mark, rest = states[key].reason.partition("; ")
        states[key] = replace(states[key], reason=f"{first}; nearest: {near}{mark}{rest}")
    return replace(planned, states=states, nearest=own)


def _read(folder: Path, without: Collection[str]) -> list[_Finished]:
    finished = []
    for done in sorted(folder.glob("*/DONE")):
        stage = StageFolder(done.parent)
        if stage.path.name not in without:
            with contextlib.suppress(OSError, ValueError):
                text = stage.paths.request.read_text(encoding="utf-8")
                finished.append((stage.path, _lines(text)))
    return finished


def _lines(text: str) -> frozenset[str]:
    return frozenset(text.replace("'", "").splitlines())


def _nearest(stage: Stage, candidates: Sequence[_Finished]) -> NearestStage | None:
    roles = stage.parents | stage.checkpoints
    asked = {"kind": stage.kind, "config": stage.config, "parents": roles}
    own = _lines(yaml.dump(asked, Dumper=DUMPER, sort_keys=False, allow_unicode=True))
    near = []
    for path, _ in heapq.nsmallest(EXACTLY, candidates, key=lambda other: len(own ^ other[1])):
        before = StageFolder(path).request() or {}
        if all(isinstance(before.get(part), dict) for part in ("config", "parents")):
            differences = tuple(dict.fromkeys(_differences(stage, before)))
            near.append(NearestStage(path.name, differences))
    best = min(near, key=lambda each: len(each.differences), default=None)
    return best if best is not None and len(best.differences) <= FEW else None


def _differences(stage: Stage, before: dict[str, Any]) -> Iterator[str]:
    """Yield what was otherwise: of the configuration, then of the parents."""
    roles = stage.parents | stage.checkpoints
    places = {role: path for role, path in _places(stage).items() if role in roles}
    changed = [role for role, key in roles.items() if before["parents"].get(role) != key]
    same = {*places.values()} - {path for role, path in places.items() if role in changed}
    outside = same.union(_outside_key(stage))
    told = set[FieldPath]()
    hashed = hashed_fields(stage.spec)
    for path, value in _compared(stage.config, before["config"], hashed, (), outside):
        told.update(at for at in places.values() if path[: len(at)] == at)
        yield f"{_written(stage, path)} was {_label(path, value)}"
    if (version := before.get("version")) != stage.spec.version:
        yield f"the version of {stage.kind} was {version}"
    for role in changed:
        if role == MODEL:
            yield f"from was {str(before['parents'].get(role))[:8]}"
        elif role not in places:
            yield "the candidates were others"
        elif places[role] not in told:
            yield f"{_written(stage, places[role])} had other content"


def _places(stage: Stage) -> dict[str, FieldPath]:
    """Where a configuration names what a parent makes, by the parent's role."""
    places: dict[str, FieldPath] = {TOKENIZER: ("tokenizer",)}
    for i, field in enumerate(stage.spec.corpora()):
        places[text_role(i)] = (field,)
    for i in range(len(stage.config.get("data", {}).get("mix", ()))):
        places[text_role(i)] = places[validation_role(i)] = ("data", "mix", i, "corpus")
    return places


def _outside_key(stage: Stage) -> Iterator[FieldPath]:
    """The fields that a key leaves out, and what the parents tell."""
    yield from (("kind",), ("from",), ("resources",))
    for field in fields(stage.spec):
        section = getattr(stage.spec, field.name)
        yield from ((field.name, of) for of in getattr(section, "excluded_from_key", ()))


def _compared(
    now: Any, before: Any, hashed: Any, at: FieldPath, outside: Collection[FieldPath]
) -> Iterator[tuple[FieldPath, Any]]:
    """The places that differ, each with what was there before; `hashed` has no defaults."""
    if at in outside or now == before:
        return
    if isinstance(now, dict) and isinstance(before, dict) and now.get("type") == before.get("type"):
        own = hashed if isinstance(hashed, dict) else {}
        for name in dict.fromkeys([*now, *before]):
            if name in before:
                inner = own.get(name)
                yield from _compared(now.get(name), before[name], inner, (*at, name), outside)
            elif name in own and (*at, name) not in outside:
                yield (*at, name), None
    elif isinstance(now, list) and isinstance(before, list) and len(now) == len(before) == 1:
        yield from _compared(now[0], before[0], now[0], (*at, 0), outside)
    else:
        yield at, before


def _written(stage: Stage, path: FieldPath) -> str:
    """A path as a sweep file writes it: the one source of `data` stands in `data` itself."""
    if path[:3] == ("data", "mix", 0) and len(stage.config["data"]["mix"]) == 1:
        path = ("data", *path[3:])
    return format_path(path)


def _label(path: FieldPath, value: Any) -> str:
    if value is None:
        return "not set"
    if path == ("embedding",) and isinstance(value, dict):
        with contextlib.suppress(EmbeddingError):  # a type that this checkout does not have
            return label(preset_of(value))
    text = label(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
