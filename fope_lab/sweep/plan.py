"""The plan of a sweep: each stage with its state in the store, and why. Also what a finished stage
ran with, whether that has changed since, and what a command says of sweeps beside their stages."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path, PurePath
from typing import Protocol

from fope_lab.config.problems import SweepError
from fope_lab.config.yaml_document import Document
from fope_lab.stages.internal import SwapEmbedding
from fope_lab.stages.key import parts_of_embedding, parts_of_stage
from fope_lab.stages.labels import axis_text
from fope_lab.stages.training import TRAINING_RECORD, TrainingConfig
from fope_lab.store.attempts import TimeTaken, over_attempts
from fope_lab.store.checkpoint import content_digest
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import CorpusRecord, Store, StoreSnapshot
from fope_lab.store.source import changed_files
from fope_lab.store.state import NOT_STARTED, StageState, Status
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.local_corpora import gone, missing_note


def modules_of(stage: Stage) -> list[str]:
    """The modules that do a stage's work. They and what they import decide its numbers."""
    parts = parts_of_stage(stage.spec)
    if stage.model_spec is not None:
        parts += parts_of_embedding(stage.model_spec.embedding)
    module = stage.spec.entry_point.partition(":")[0]
    return list(dict.fromkeys([module, *(part.__module__ for part in parts)]))


class StageNode(Protocol):
    """What a graph of stages says of each; section and label are empty if only its key names it."""

    @property
    def kind(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def section(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def parents(self) -> Mapping[str, str]: ...


def output_digest(folder: StageFolder) -> str | None:
    """The digest of what a finished stage leaves, without times; None if that is damaged."""
    checkpoint = folder.final_checkpoint()
    if checkpoint is None:
        return None
    return content_digest(checkpoint.path, without=(TRAINING_RECORD,))


def other_parents(
    stage: StageNode, stages: Mapping[str, StageNode], store: Store
) -> tuple[str, ...]:
    """The parents with other output now than a finished stage read, by their sections. `stages` has
    the parents by key. A parent counts as unchanged if its output is gone, and if the stage did not
    record what it read."""
    read = store.folder(stage.kind, stage.key).parents_read()
    found = (
        stages[key].section
        for role, key in stage.parents.items()
        if role in read
        and key in stages
        and output_digest(store.folder(stages[key].kind, key)) not in (None, read[role])
    )
    return tuple(dict.fromkeys(found))


def read_other_output(parents: Sequence[str]) -> str:
    """Why a finished stage is re-run whose `parents` have other output than it read."""
    have = "have" if len(parents) > 1 else "has"
    return f"finished earlier, but {', '.join(parents)} {have} other output now than it read"


class ChangesSince:
    """Compares what finished stages ran with to what is there today; reads each record once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = functools.cache(self._read)

    def within(self, store: Store) -> ChangesSince:
        """The same for another view of the store, such as a snapshot."""
        other = ChangesSince(store)
        other._changed = self._changed
        return other

    def files(self, stage: StageNode) -> tuple[str, ...]:
        """The files of code that have changed since a stage was finished, by their paths then."""
        makers = self._store.folder(stage.kind, stage.key).makers()
        names = [made_by.get("source") for made_by in makers]
        files = (path for name in names if isinstance(name, str) for path in self._changed(name))
        return tuple(dict.fromkeys(files))

    def of(self, stage: StageNode, stages: Mapping[str, StageNode]) -> tuple[str, ...]:
        """These files, and the sections of parents with other output; `stages` has those by key."""
        others = other_parents(stage, stages, self._store)
        return tuple(dict.fromkeys([*self.files(stage), *others]))

    def _read(self, name: str) -> tuple[str, ...]:
        return tuple(changed_files(self._store.source(name) or {}))


def read_states(stages: Iterable[Stage], store: Store) -> dict[str, StageState]:
    """The state of each stage by its key, from the store alone."""
    begun = functools.cache(store.keys)  # of a large grid, most stages have no folder
    return {
        stage.key: store.folder(stage.kind, stage.key).state()
        if stage.key in begun(stage.kind)
        else NOT_STARTED
        for stage in stages
    }


def unfinished_parents(stage: Stage, states: Mapping[str, StageState]) -> list[str]:
    """The keys of the stage's parents that are not done, each once."""
    keys = dict.fromkeys(stage.parents.values())
    return [key for key in keys if key in states and not states[key].is_done]


def block_descendants(
    stages: Sequence[Stage], states: Mapping[str, StageState]
) -> dict[str, StageState]:
    """`states`, with unfinished descendants of failed stages blocked; parents come first."""
    blocked = dict(states)
    names = {stage.key: stage.label for stage in stages}
    for stage in stages:
        state = blocked[stage.key]
        if state.status in (Status.DONE, Status.FAILED):
            continue
        for key in unfinished_parents(stage, blocked):
            parent = blocked[key]
            if parent.status in (Status.FAILED, Status.BLOCKED):
                failed = parent.status is Status.FAILED
                reason = f"{names[key]} failed" if failed else parent.reason
                blocked[stage.key] = replace(state, status=Status.BLOCKED, reason=reason)
                break
    return blocked


ACTIONS = ("cached", "resume", "run", "blocked", "if needed", "not needed")
"""What a run does with a stage: the states of `plan --json`."""
MOST_ROWS = 200
"""How many stages a notebook shows of a plan."""
SHOWN = 3
"""How many differences to the nearest stage, and how many changed files, are shown."""


@dataclass(frozen=True)
class NearestStage:
    """The finished stage that is most like one that the store lacks, and what was otherwise."""

    key: str
    differences: tuple[str, ...]

    def __str__(self) -> str:
        """Such as "train.learning_rate was 0.001 (1a2b3c4d)"."""
        more = len(self.differences) - SHOWN
        text = ", ".join(self.differences[:SHOWN]) + (f" and {more} more" if more > 0 else "")
        return f"{text or 'the same with other files or code'} ({self.key[:8]})"


@dataclass(frozen=True)
class Plan:
    """A sweep, and the state of each of its stages by key. `changes` has the files that changed
    since finished stages ran, and `nearest` the most similar finished stages of those that the
    store lacks (nearest.py)."""

    sweep: Sweep
    states: dict[str, StageState]
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    nearest: Mapping[str, NearestStage] = field(default_factory=dict)

    def action(self, key: str) -> str:
        return action(self.states[key])

    def _repr_html_(self) -> str:
        """A table of the stages, for a notebook."""
        import pandas
        from markupsafe import escape

        stages = self.sweep.stages
        counts = Counter(self.action(stage.key) for stage in stages)
        words = ", ".join(f"{counts[word]:,} {word}" for word in ACTIONS if counts[word])
        more = f"; the first {MOST_ROWS} are shown" if len(stages) > MOST_ROWS else ""
        rows = [
            {
                "stage": stage.label,
                "state": self.action(stage.key),
                "parameters": f"{stage.cost.parameters.total:,}" if stage.cost.parameters else "",
                "tokens": f"{stage.cost.tokens:,}" if stage.cost.tokens else "",
                "FLOPs": f"{stage.cost.flops:.2e}" if stage.cost.flops else "",
                "key": stage.key[:8],
                "why": self.states[stage.key].reason,
            }
            for stage in stages[:MOST_ROWS]
        ]
        with pandas.option_context("display.max_colwidth", None):
            table = pandas.DataFrame(rows).to_html(index=False, border=0, justify="left")
        return (
            f"<p><b>{escape(self.sweep.name)}</b>: {len(stages):,} stages: {words}{more}</p>{table}"
        )


def action(state: StageState) -> str:
    if state.is_done:
        return "cached"
    if state.status is Status.BLOCKED or state.is_unneeded:
        return str(state.status)
    return "run" if state.checkpoint is None else "resume"


def stages_of(plans: Iterable[Plan]) -> list[Stage]:
    """The stages of all plans, each once; parents come before their children."""
    return list({s.key: s for planned in plans for s in planned.sweep.stages}.values())


def plan(sweep: Sweep, store: Store | str | os.PathLike[str] | None = None) -> Plan:
    """Return what a run of `sweep` would do, given what the store holds; without one, everything.
    Planning writes nothing. Raises StoreError if `store` is not a folder."""
    if store is not None:
        store = StoreSnapshot.of(store if isinstance(store, Store) else Store.open(store))
    found = read_states(sweep.stages, store) if store else {}
    by_key = {stage.key: stage for stage in sweep.stages}
    since = ChangesSince(store) if store else None
    changes: dict[str, tuple[str, ...]] = {}
    states: dict[str, StageState] = {}
    for stage in sweep.stages:
        state = found.setdefault(stage.key, NOT_STARTED)
        if store and state.is_done and (others := other_parents(stage, by_key, store)):
            state = StageState(Status.DAMAGED, read_other_output(others), attempt=state.attempt)
            found[stage.key] = state
        if store and since and state.is_done:
            changes[stage.key] = since.files(stage)
            taken = store.folder(stage.kind, stage.key).time_taken()
            reason = _done(taken, changes[stage.key])
        elif missing := missing_input(stage, store):
            state, reason = replace(state, status=Status.BLOCKED), missing
        else:
            parents = [by_key[key].section for key in unfinished_parents(stage, found)]
            reason = _reason(state, parents)
            if words := stage.spec.in_words():
                reason = f"{reason}; {words}"
        states[stage.key] = replace(state, reason=reason)
    return Plan(sweep, states, {key: files for key, files in changes.items() if files})


def missing_input(stage: Stage, store: Store | None) -> str | None:
    """What a stage needs but is missing, and what to do about it; None if nothing is."""
    if stage.missing_files:
        return f"it needs its text files, but {gone(stage.missing_files)}; put back what is missing"
    return stage.spec.missing_resource(store.root if store else None)


def _done(taken: TimeTaken | None, changed: Sequence[str]) -> str:
    text = "done"  # without a time, it was set aside a moment ago
    if taken is not None:
        text += f" in {over_attempts(f'{taken.seconds:.0f} s', taken.attempts)}"
    if not changed:
        return text
    names = ", ".join(PurePath(path).name for path in changed[:SHOWN])
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    have = "have" if len(changed) > 1 else "has"
    return f"{text}, but {names}{more} {have} changed since"


def _reason(state: StageState, parents: Sequence[str]) -> str:
    parts = []
    if state.checkpoint is not None:
        parts.append(f"from its checkpoint at step {state.checkpoint.step}")
    tried = state.status in (Status.FAILED, Status.INTERRUPTED)
    parts.append(f"{state.status} earlier: {state.reason}" if tried else state.reason)
    if parents:
        parts.append(f"after {', '.join(dict.fromkeys(parents))}")
    return "; ".join(parts)


def notes(sweeps: Sequence[Sweep], store: Store) -> list[str]:
    """A line for each thing that the user should know of the sweeps."""
    missing = missing_note(known for sweep in sweeps for known in sweep.missing_corpora)
    named = (name_note(sweep, store) for sweep in sweeps)
    untrained = (mechanism_note(sweep) for sweep in sweeps)
    windows = (window_note(sweep) for sweep in sweeps)
    same = (same_stages_note(sweep) for sweep in sweeps)
    shared = (shared_files_note(sweep) for sweep in sweeps)
    return [note for note in (missing, *named, *untrained, *windows, *same, *shared) if note]


def mechanism_note(sweep: Sweep) -> str | None:
    """One line about models that get an embedding of another mechanism without training."""
    swapped = {
        stage.label: stage.model_spec
        for stage in sweep.stages
        if isinstance(stage.spec, SwapEmbedding)
        and stage.model_spec is not None
        and stage.model_spec.trained_mechanism != stage.model_spec.embedding.mechanism
    }
    if not swapped:
        return None
    (name, model), more = next(iter(swapped.items())), len(swapped) - 1
    others = f" (and {more} more)" if more else ""
    return (
        f"{name}{others}: the weights were trained with {model.trained_mechanism}, and"
        f" {model.embedding.name} is another mechanism, which no step of training adapts them to"
    )


def window_note(sweep: Sweep) -> str | None:
    """One line about trainings whose sequences are no longer than the windows of their layers."""
    idle: dict[str, tuple[int, int]] = {}
    for stage in sweep.stages:
        model, longest = stage.model_spec, stage.spec.max_sequence_length()
        if model is None or longest is None or not isinstance(stage.spec, TrainingConfig):
            continue
        kinds = model.embedding.counts(model.model.num_layers)
        windows = [kind.window for kind in kinds if kind.window is not None]
        if windows and min(windows) >= longest[1]:
            idle[stage.label] = min(windows), longest[1]
    if not idle:
        return None
    (name, (window, length)), more = next(iter(idle.items())), len(idle) - 1
    others = f" (and {more} more)" if more else ""
    return f"{name}{others}: a window of {window:,} tokens hides nothing of sequences of {length:,}"


def shared_files_note(sweep: Sweep) -> str | None:
    """One line about a file of two corpora that are split in different ways."""
    first: dict[str, CorpusRecord] = {}
    for record in (local.record for local in sweep.local_corpora):
        for path, digest in record.files.items():
            other = first.setdefault(digest, record)
            if other.identity != record.identity:
                return (
                    f"{path} is in two corpora of this sweep, which hold out different parts of it:"
                    " what is held out of one may be trained on in the other"
                )
    return None


def same_stages_note(sweep: Sweep) -> str | None:
    """One line about values of an axis that give the same stages."""
    for name, stages in sweep.by_section.items():
        ways: dict[str, list[Stage]] = {}
        for stage in stages:
            ways.setdefault(stage.key, []).append(stage)
        for one, other in chain.from_iterable(map(pairwise, ways.values())):
            values = {axis: (value, other.axes.get(axis)) for axis, value in one.axes.items()}
            apart = [axis for axis, (first, second) in values.items() if first != second]
            if [axis.partition(".")[0] for axis in apart] == [name]:
                [axis] = apart
                both = " and ".join(axis_text(axis, value) for value in values[axis])
                return f"{axis}: {both} give {name} the same stage, which runs once"
    return None


def name_note(sweep: Sweep, store: Store) -> str | None:
    """A line about another file of the sweep's name with other content, whose report is stored."""
    other = store.sweep_file(sweep.name)
    if other is None or not _is_of_user(sweep.path, store) or not _is_of_user(other, store):
        return None
    try:
        same = other.samefile(sweep.path) or other.read_bytes() == sweep.path.read_bytes()
        content = None if same else Document(other).value
    except (OSError, SweepError):
        return None
    if not isinstance(content, dict) or content.get("name") != sweep.name:
        return None
    return (
        f"two sweep files have the name {sweep.name!r}: {sweep.path} and {other}. They share a"
        " report and an MLflow experiment; give one of them another name"
    )


def keep_file(sweep: str, path: Path, store: Store) -> None:
    """Remember which file the sweep of this name comes from."""
    if _is_of_user(path, store):
        store.keep_sweep_file(sweep, path)


def _is_of_user(path: Path, store: Store) -> bool:
    """Whether the file is there, and is no copy inside the store."""
    return path.is_file() and not store.contains(path)
