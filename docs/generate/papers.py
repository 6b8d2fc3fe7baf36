"""What the papers have, and where it is in the project: docs/papers/NAME.yaml, checked.

The statements of a paper that claims stand for are in the sweep files, beside the claims. The file
of a paper has its figures, tables and results, and the statements that no claim stands for.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from annotated_types import MinLen

from docs.generate.shipped import ROOT, load_shipped
from fope_lab.analysis.base import ANALYSIS_TYPES
from fope_lab.config.annotations import Doc
from fope_lab.config.checks import KnownName
from fope_lab.config.options import Options, entry_of
from fope_lab.config.problems import ConfigError, Problem
from fope_lab.embeddings import embedding_names
from fope_lab.sweep import Sweep
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.report_section import ClaimGroup

FOLDER = ROOT / "docs" / "papers"
Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True)
class SweepPart:
    """A shipped sweep, such as fope/table2, or one stage of it, such as fope/table2#magnitude."""

    file: str
    stage: str

    @classmethod
    def of(cls, text: str) -> SweepPart:
        """The part that a text names."""
        file, _, stage = text.partition("#")
        return cls(file, stage)

    @property
    def path(self) -> str:
        """The file of the sweep, from the repository's root."""
        return f"sweeps/{self.file}.yaml"

    @property
    def sweep(self) -> Sweep:
        """The sweep, read and checked."""
        return load_shipped(ROOT / self.path)

    @property
    def stages(self) -> list[Stage]:
        """The stages of the part, without those that prepare data for them."""
        return [s for s in self.sweep.stages if self.stage in ("", s.section)]

    def fault(self) -> str:
        """Why there is no such part; empty if there is."""
        if not (ROOT / self.path).is_file():
            return f"there is no {self.path}"
        if self.stage and self.stage not in self.sweep.by_section:
            return f"{self.path} has no stage {self.stage}"
        return ""


@dataclass(frozen=True, kw_only=True)
class Item(Options):
    """A figure, a table or a result of a paper, and what there is of it."""

    item: Annotated[Text, Doc("What the paper calls it, as in Figure 1.")]
    place: Annotated[Text, Doc("The sections that it belongs to.")]
    shows: Annotated[Text, Doc("What it shows, in our words.")]
    sweeps: Annotated[
        tuple[Text, ...], Doc("Shipped sweeps, or a stage of one, as in fope/table2#magnitude.")
    ] = ()
    analyses: Annotated[
        tuple[Annotated[str, KnownName("analysis", ANALYSIS_TYPES.all)], ...],
        Doc("Analyses that no sweep runs."),
    ] = ()
    embeddings: Annotated[
        tuple[Annotated[str, KnownName("embedding", embedding_names)], ...],
        Doc("Embeddings that are what it defines."),
    ] = ()
    differs: Annotated[Text | None, Doc("What is not as in the paper, and why.")] = None
    lacks: Annotated[Text | None, Doc("What is not there, and why not.")] = None

    @property
    def parts(self) -> list[SweepPart]:
        """The sweeps, or stages of them, that stand for it."""
        return [SweepPart.of(text) for text in self.sweeps]

    def problems(self) -> Iterator[Problem]:
        """Sweeps that are not there, and an item with nothing and no reason."""
        for i, part in enumerate(self.parts):
            if fault := part.fault():
                yield Problem(("sweeps", i), fault)
        if not (self.sweeps or self.analyses or self.embeddings or self.lacks):
            yield Problem((), f"{self.item} is nowhere here", "lacks, which says why")


@dataclass(frozen=True, kw_only=True)
class Statement(Options):
    """A sentence of the paper that no claim stands for."""

    quote: Annotated[Text, Doc("The sentence, in the words of the paper.")]
    place: Annotated[Text, Doc("Where it is in the paper.")]
    here: Annotated[Text, Doc("What there is instead of a claim, or why nothing is.")]


@dataclass(frozen=True, kw_only=True)
class Paper(Options):
    """A paper: where it is, what it has, and its statements without a claim."""

    title: Annotated[Text, Doc("Its authors and title.")]
    arxiv: Annotated[Text, Doc("Its number at arXiv.")]
    items: Annotated[tuple[Item, ...], MinLen(1), Doc("Everything that it shows.")]
    statements: Annotated[tuple[Statement, ...], Doc("Statements without a claim.")] = ()

    def groups(self, item: Item) -> Iterator[tuple[SweepPart, ClaimGroup]]:
        """The sentences that claims of an item's sweeps stand for.

        A sentence whose place names items, as in "§4, of Figure 3", belongs to these. Of others,
        those about a stage belong to the items that name it, and the rest to those of the sweep.
        """
        named = {part for each in self.items for part in each.parts if part.stage}
        for part in item.parts:
            others = {one.stage for one in named if one.file == part.file and one != part}
            for group in part.sweep.report.claims:
                if isinstance(group, str):
                    continue
                about = {text.partition(".")[0] for text in group.claims}
                owners = self._named_in(group.place or "")
                if item.item not in (owners or [item.item]):
                    continue
                if part.stage in about or (not part.stage and not about & others):
                    yield part, group

    def _named_in(self, place: str) -> list[str]:
        """The items whose names are in the place of a sentence."""
        named = (item.item for item in self.items)
        return [name for name in named if re.search(rf"\b{re.escape(name)}\b", place)]

    def quotes(self) -> Iterator[tuple[str, str]]:
        """Every quotation, with the file that has it; those of shared sweeps once."""
        for file in dict.fromkeys(part.file for item in self.items for part in item.parts):
            part = SweepPart(file, "")
            for group in part.sweep.report.claims:
                if isinstance(group, ClaimGroup) and group.quote is not None:
                    yield part.path, group.quote
        for statement in self.statements:
            yield "the page of the paper", statement.quote


class WrongPaperError(Exception):
    """A file of docs/papers is wrong."""


def paper_files() -> list[Path]:
    """The files of the papers."""
    return sorted(FOLDER.glob("*.yaml"))


@functools.cache
def load_paper(file: Path) -> Paper:
    """Read a file of docs/papers. Raises WrongPaperError with everything that is wrong with it."""
    try:
        return entry_of(Paper).read(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (ConfigError, yaml.YAMLError) as error:
        raise WrongPaperError(f"{file.name}: {error}") from error
