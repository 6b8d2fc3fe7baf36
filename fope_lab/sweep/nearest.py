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
from fope_lab.config.roles import MODEL, TOKENIZER, text_role, validation_role
from fope_lab.embeddings import EmbeddingError, preset_of
from fope_lab.stages.key import hashed_fields
from fope_lab.stages.labels import label
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.store.state import Status
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import NearestStage, Plan, unfinished_parents

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
    """Return the plans, in which stages that the store lacks name its most similar stage. Left out
    are stages that wait for others, because of which they run. Stages of the plans are not named:
    of those, people know how they differ."""
    stages = {stage.key: stage for planned in plans for stage in planned.sweep.stages}
    states = {key: state for planned in plans for key, state in planned.states.items()}
    finished = functools.cache(lambda kind: _read(store.root / kind, without=stages))
    nearest: dict[str, NearestStage] = {}
    pairs = 0
    for key, stage in stages.items():
        if states[key].status is not Status.NOT_STARTED or unfinished_parents(stage, states):
            continue
        pairs += len(finished(stage.kind)) + OF_A_STAGE
        if pairs > MOST_PAIRS:
            break
        if near := _nearest(stage, finished(stage.kind)):
            nearest[key] = near
            first, mark, rest = states[key].reason.partition("; ")
            reason = f"{first}; nearest: {near}{mark}{rest}"
            states[key] = replace(states[key], reason=reason)
    return [
        replace(
            planned,
            states={key: states[key] for key in planned.states},
            nearest={key: near for key, near in nearest.items() if key in planned.states},
        )
        for planned in plans
    ]


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
            differences = tuple(dict.fromkeys(_differences(stage, before, roles)))
            near.append(NearestStage(path.name, differences))
    best = min(near, key=lambda each: len(each.differences), default=None)
    return best if best is not None and len(best.differences) <= FEW else None


def _differences(stage: Stage, before: dict[str, Any], roles: dict[str, str]) -> Iterator[str]:
    """Yield what was otherwise: of the configuration, then of the parents."""
    spec, mix = stage.spec, stage.config.get("data", {}).get("mix", ())
    places: dict[str, FieldPath] = {TOKENIZER: ("tokenizer",)}  # that say what a parent makes
    places |= {text_role(i): (field,) for i, field in enumerate(spec.corpora())}
    for i in range(len(mix)):
        places[text_role(i)] = places[validation_role(i)] = ("data", "mix", i, "corpus")
    changed = [role for role, key in roles.items() if before["parents"].get(role) != key]
    same = {places[role] for role in places.keys() & roles} - {places.get(r) for r in changed}
    outside = {("kind",), ("from",), ("resources",), *same}
    for field in fields(spec):
        section = getattr(spec, field.name)
        outside |= {(field.name, each) for each in getattr(section, "excluded_from_key", ())}

    def written(path: FieldPath) -> str:
        """Write a path as a sweep file does: the one source of `data` stands in `data` itself."""
        alone = path[:3] == ("data", "mix", 0) and len(mix) == 1
        return format_path(("data", *path[3:]) if alone else path)

    said = set[FieldPath]()
    for path, value in _compared(stage.config, before["config"], hashed_fields(spec), (), outside):
        said.update(at for at in places.values() if path[: len(at)] == at)
        yield f"{written(path)} was {_label(path, value)}"
    if (version := before.get("version")) != spec.version:
        yield f"the version of {stage.kind} was {version}"
    for role in changed:
        if role == MODEL:
            yield f"from was {str(before['parents'].get(role))[:8]}"
        elif role not in places:
            yield "the candidates were others"
        elif places[role] not in said:
            yield f"{written(places[role])} had other content"


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


def _label(path: FieldPath, value: Any) -> str:
    if value is None:
        return "not set"
    if path == ("embedding",) and isinstance(value, dict):
        with contextlib.suppress(EmbeddingError):  # a type that this checkout does not have
            return label(preset_of(value))
    if isinstance(value, list) and len(value) > FEW:
        return f"{label(value[:1])} and {len(value) - 1} more"
    text = label(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
