"""A sweep as the store records it for MLflow, without the need for its file: its stages, and the
names of their runs. What distinguishes runs comes first, in the width MLflow shows.

MLflow's list cuts a name after about 20 characters. So a name begins with what differs between the
stages of a section, and ends with the section: "rope s0 perplexity". Where that is too long, its
longest words become shorter: "fope-offi 60m s0 per".

A line of a chart goes by what is left of such a name without the section and the seed: "rope 2e-3".
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from fope_lab.stages.labels import is_embedding, label, split_label, telling_columns
from fope_lab.sweep.plan import Plan

if TYPE_CHECKING:
    from fope_lab.sweep.graph import Stage

WIDTH = 20
"""The characters of a name that MLflow's list shows."""
LEAST = 4
"""The fewest letters to which a word is cut; three in the name of a section."""
LETTER = r"[^\W\d_]"
FRACTION = re.compile(r"-?0\.\d*[1-9]\d*|-?[1-9](?:\.\d+)?e-\d+")
"""A number between -1 and 1 but 0, as Python writes it."""
Texts = tuple[str, ...]
"""A text for each stage of a section; an empty one where a facet says nothing of the stage."""
Facet = tuple[tuple[int, int], Sequence[Texts], Set[int]]
"""What may tell the stages of a section apart: its place in their names, and its texts as they are
best read, then shorter and shorter ones that tell the same stages apart. A name leaves out the text
of a stage in the last set, by index: it says so already."""


@dataclass(frozen=True, kw_only=True)
class StageOutline:
    """A stage of a sweep, as far as MLflow shows it.

    `cached` says that the store already had it, finished, when the sweep was first planned.

    `curves` has the axis of each of its metrics that is a curve, by the metric's name.
    """

    key: str
    label: str
    section: str
    kind: str
    config: Mapping[str, Any]
    axes: Mapping[str, Any]
    parents: Mapping[str, str]
    seed: int | None
    embedding: str | None
    scale: str | None
    curves: Mapping[str, str]
    cached: bool


@dataclass(frozen=True, kw_only=True)
class Outline:
    """A plan, as far as MLflow shows it."""

    name: str
    description: str
    file: str
    stages: tuple[StageOutline, ...]

    @functools.cached_property
    def names(self) -> Mapping[str, str]:
        """The names of the stages' runs, by key."""
        return run_names(self.stages)

    @functools.cached_property
    def lines(self) -> Mapping[str, str]:
        """The names of the lines that charts draw of the stages with an embedding, by key."""
        return line_names(stage for stage in self.stages if stage.embedding is not None)

    @classmethod
    def of(cls, plan: Plan, cached: Mapping[str, bool]) -> Outline:
        """The outline of a plan; `cached` holds, by key, what was recorded for stages before."""
        sweep = plan.sweep
        stages = [
            StageOutline(
                key=stage.key,
                label=stage.label,
                section=stage.section,
                kind=stage.kind,
                config=stage.config,
                axes=stage.axes,
                parents=stage.parents,
                seed=stage.seed,
                embedding=stage.embedding,
                scale=stage.scale,
                curves={m.name: m.axis.name for m in stage.spec.metrics() if m.axis is not None},
                cached=cached.get(stage.key, plan.states[stage.key].is_done),
            )
            for stage in sweep.stages
        ]
        return cls(
            name=sweep.name,
            description=sweep.description,
            file=str(sweep.path),
            stages=tuple(stages),
        )


OUTLINE = TypeAdapter(Outline)
"""Reads an outline from JSON, and raises ValueError for another text."""


def run_names(stages: Iterable[Stage | StageOutline], width: int = WIDTH) -> dict[str, str]:
    """The names of the runs of a sweep's stages by key: all different, and at most `width` long."""
    sections = _by_section(stages)
    shortened = zip(*_shorter(tuple(sections), LEAST - 1), strict=True)
    names: dict[str, str] = {}
    for members, ending in zip(sections.values(), shortened, strict=True):
        for stage, parts in zip(members, _parts(members), strict=True):
            names[stage.key] = _fitted([*parts, ending], width)
    return _made_different(names, width)


def line_names(stages: Iterable[Stage | StageOutline], width: int = WIDTH) -> dict[str, str]:
    """The names of the lines that charts draw of stages, by key; lines of a section differ.

    Stages that differ only in their seed share a line. One that is alone goes by its embedding.
    """
    lines: dict[tuple[str, int], Stage | StageOutline] = {}
    line_of: dict[str, str] = {}
    same: Counter[tuple[str, int | None]] = Counter()  # stages that share their seed, too
    for stage in stages:
        place = json.dumps([stage.section, stage.axes], sort_keys=True)
        number = same[place, stage.seed]
        same[place, stage.seed] += 1
        line = lines.setdefault((place, number), replace(stage, label=stage.section, seed=None))
        line_of[stage.key] = line.key
    names: dict[str, str] = {}
    for section, members in _by_section(lines.values()).items():
        found = {
            line.key: _fitted(parts, width) or line.embedding or section
            for line, parts in zip(members, _parts(members), strict=True)
        }
        names |= _made_different(found, width)
    return {key: names[line] for key, line in line_of.items()}


def _by_section(stages: Iterable[Stage | StageOutline]) -> dict[str, list[Stage | StageOutline]]:
    sections: dict[str, list[Stage | StageOutline]] = {}
    for stage in stages:
        sections.setdefault(stage.section, []).append(stage)
    return sections


def _parts(stages: Sequence[Stage | StageOutline]) -> list[list[list[str]]]:
    """What distinguishes each stage, in the order of a name, each part in its forms."""
    facets = list(_facets(stages))
    rows = [*zip(*(forms[0] for _, forms, _ in facets), strict=True)]
    telling = sorted((facets[column] for column in telling_columns(rows)), key=lambda of: of[0])
    return [
        [[""] if i in said else [form[i] for form in forms] for _, forms, said in telling]
        for i in range(len(stages))
    ]


def _facets(stages: Sequence[Stage | StageOutline]) -> Iterator[Facet]:
    """All that may tell the stages apart: names, numbers and seeds, then the options of names."""
    axes = dict.fromkeys(axis for stage in stages for axis in stage.axes)
    columns = [
        tuple(stage.embedding or "" for stage in stages),
        *(tuple(label(s.axes[axis]) if axis in s.axes else "" for s in stages) for axis in axes),
        # Only the labels of two preparations of data say how they differ.
        tuple(f"({stage.label[len(stage.section) + 1 : -1]})" for stage in stages),
    ]
    split = [[split_label(text) for text in texts] for texts in columns]
    embeddings = [column for column, axis in enumerate(axes, start=1) if is_embedding(axis)]
    for column, parts in enumerate(split):
        names = tuple(name for name, _ in parts)
        before = [split[0], *(split[other] for other in embeddings if other < column)]
        said = [{other[i][0] for other in before} for i in range(len(stages))]
        repeats = {i for i, name in enumerate(names) if column in embeddings and name in said[i]}
        yield (column, 0), _shorter(_brief(names)), repeats
    seeds = tuple("" if stage.seed is None else f"s{stage.seed}" for stage in stages)
    yield (len(columns), 0), [seeds], set()
    for column, parts in enumerate(split):
        # The embedding that a stage kept is its own, with all its options.
        kept = {i for i, part in enumerate(parts) if column in embeddings and part == split[0][i]}
        options = [dict(map(_named, enumerate(found))) for _, found in parts]
        for place, name in enumerate(dict.fromkeys(name for found in options for name in found)):
            texts = tuple(found.get(name, "") for found in options)
            yield (column, place + 1), _shorter(_brief(texts)), kept


def _named(option: tuple[int, str]) -> tuple[str, str]:
    """The name and the value of an option; the name is its place where it has none."""
    place, text = option
    name, sign, value = text.partition("=")
    return (name, value) if sign else (str(place), text)


def _brief(texts: Texts) -> Texts:
    """Texts with their fractions as powers of ten, if that is shorter in all: 0.0005 → 5e-4."""
    powers = tuple(
        f"{Decimal(text).normalize():e}" if FRACTION.fullmatch(text) else text for text in texts
    )
    is_shorter = sum(map(len, powers)) < sum(map(len, texts))
    return powers if is_shorter and len(set(powers)) == len(set(texts)) else texts


def _shorter(texts: Texts, least: int = LEAST) -> list[Texts]:
    """Texts, and then with fewer and fewer letters of each word, as long as they stay different."""
    words = (word for text in texts for word in re.findall(f"{LETTER}+", text))
    longest = max(map(len, words), default=0)
    forms = [texts]
    for letters in range(longest - 1, least - 1, -1):
        cut = tuple(re.sub(rf"({LETTER}{{{letters}}}){LETTER}+", r"\1", text) for text in texts)
        if len(set(cut)) == len(set(texts)):
            forms.append(cut)
    return forms


def _fitted(parts: Sequence[Sequence[str]], width: int) -> str:
    """The name with these parts, each in its forms; the longest part becomes shorter first, the
    last of those that are equally long."""
    chosen = [list(forms) for forms in parts]
    while len(name := " ".join(forms[0] for forms in chosen if forms[0])) > width:
        longer = [forms for forms in chosen if len(forms) > 1]
        if not longer:
            break
        del max(reversed(longer), key=lambda forms: len(forms[0]))[0]
    return name


def _made_different(names: Mapping[str, str], width: int) -> dict[str, str]:
    """Names by key, cut to `width`; one that another stage already has ends in a number."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for key, name in names.items():
        different, number = name[:width].rstrip(), 1
        while different in taken:
            number += 1
            different = f"{name[: width - len(str(number)) - 1].rstrip()} {number}"
        taken.add(different)
        found[key] = different
    return found
