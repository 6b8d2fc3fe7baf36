"""`load_sweep`: from a sweep file to a checked `Sweep`, in these steps:

    Document       the YAML text, with the line of every field        config/yaml_document.py
    SweepFile      the top level of the file                          sweep_file.py
    OtherStages    the stages of the files that it refers to          (here, by the same steps)
    GridPoint      the value of every axis, and a seed                expand.py
    Draft          a section at a grid point, and its parent          drafts.py
    StageFields    the section with the values of its axes            drafts.py
    Stage          the fields checked, with their key, and the        stage_builder.py
                   stages that prepare the data                       added_stages.py
    Sweep          all stages, and a report section that fits them

A step reports what is wrong and leaves it out, so that one SweepError holds all problems.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fope_lab.config.cache import Cache
from fope_lab.config.problems import (
    FieldPath,
    Problem,
    SweepError,
    did_you_mean,
    format_path,
    name_list,
    shown,
)
from fope_lab.config.shipped import sweep_path
from fope_lab.config.yaml_document import Document
from fope_lab.stages.labels import distinguish
from fope_lab.store.root import Store
from fope_lab.sweep.added_stages import rule_problems
from fope_lab.sweep.claims.compare import compare
from fope_lab.sweep.claims.grammar import parse_claim, parse_quantity
from fope_lab.sweep.claims.lookup import Catalogue
from fope_lab.sweep.claims.statement import Claim, ClaimError
from fope_lab.sweep.drafts import Drafts, OtherFileError, OtherStages
from fope_lab.sweep.expand import Expansion, ProblemCollector, same_value
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.local_corpora import LocalCorpora
from fope_lab.sweep.report_section import ReportSection
from fope_lab.sweep.stage_builder import StageBuilder
from fope_lab.sweep.sweep_file import CLAIMS, UNTIL, SeedRule, no_mapping, read_sweep_file


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Pause Python's garbage collector. While the stages of a large grid are made, it would look at
    all of them again and again, and take a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load_sweep(path: str | Path, store: Store | None = None) -> Sweep:
    """Read and check a sweep file, or a sweep that comes with fope-lab, by its name. Raises
    SweepError with every problem. Local files that are gone count as `store` recorded them; without
    a store they are a problem."""
    with no_collections():
        return _Loader(store).load(sweep_path(path).absolute())


def parse_sweep(text: str, path: Path, store: Store | None = None) -> Sweep:
    """The sweep that a file `path` with this text would hold. Otherwise as load_sweep."""
    return _Loader(store).load(path.absolute(), text)


def load_sweeps(paths: Sequence[str], store: Store | None = None) -> list[Sweep]:
    """The sweeps of files, of folders and of names (fope_lab/config/shipped.py); `store` knows
    local files that are gone. Raises SweepError with the problems of all of them."""
    problems: list[Problem] = []
    unique: dict[Path, Path] = {}  # a file that is named twice is one sweep
    for word in paths:
        try:
            path = sweep_path(word)
        except SweepError as error:
            problems += error.problems
            continue
        files = sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
        if not files:
            problems.append(Problem((), "this folder has no sweep file (*.yaml)", file=path))
        for file in files:
            unique.setdefault(file.resolve(), file)
    by_name: dict[str, Sweep] = {}
    for file in unique.values():
        try:
            sweep = load_sweep(file, store)
        except SweepError as error:
            problems += error.problems
            continue
        if sweep.name in by_name:
            message = f"sweep name {sweep.name!r} is already used in {by_name[sweep.name].path}"
            problems.append(Problem(("name",), message, file=sweep.path))
        by_name.setdefault(sweep.name, sweep)
    if problems:
        raise SweepError(problems)
    return list(by_name.values())


def load_single_sweep(path: str, store: Store | None = None) -> Sweep:
    """The sweep of a file. Raises SweepError, also for a folder of several sweep files."""
    first, *others = load_sweeps([path], store)
    if others:
        files = ", ".join(sweep.path.name for sweep in (first, *others))
        message = f"needs one sweep file, but this folder has {1 + len(others)}: {files}"
        raise SweepError(Problem((), message, file=Path(path)))
    return first


def name_of_sweep(path: str) -> str:
    """The name of the sweep in a file, which may otherwise be wrong: it may have been edited since
    it was run. Raises SweepError if there is none."""
    document = Document(sweep_path(path))
    content = document.value
    if not isinstance(content, dict):
        problem = no_mapping(content)
    elif "name" not in content:
        problem = Problem(("name",), "is missing")
    elif isinstance(name := content["name"], str):
        return name
    else:
        problem = Problem(("name",), f"found {shown(name)}", "text")
    raise SweepError(document.locate(problem))


class _Loader:
    """Reads each sweep file once; the files that refer to each other share a cache."""

    def __init__(self, store: Store | None) -> None:
        self._results: dict[Path, Sweep | SweepError] = {}
        self._open: list[Path] = []
        self._cache = Cache()
        self._corpora = LocalCorpora(store)

    def load(self, path: Path, text: str | None = None) -> Sweep:
        """The sweep in a file, or in `text`. Raises SweepError, and OtherFileError in a cycle."""
        real = path.resolve()
        if real in self._open:
            if real == self._open[-1]:
                raise OtherFileError("this is the file itself; leave out the part before the #")
            names = [file.name for file in [*self._open[self._open.index(real) :], real]]
            raise OtherFileError(f"a cycle: {' → '.join(names)}")
        if real not in self._results:
            self._open.append(real)
            try:
                self._results[real] = self._read(path, text)
            except SweepError as error:
                self._results[real] = error
            finally:
                self._open.pop()
        result = self._results[real]
        if isinstance(result, SweepError):
            raise result
        return result

    def _read(self, path: Path, text: str | None) -> Sweep:
        document = Document(path, text)
        problems = ProblemCollector(document)
        file, wrong = read_sweep_file(document)
        problems.add(*wrong)
        if file is None:
            raise problems.error()
        others: dict[str, OtherStages] = {}
        for at, reference in file.references():
            if isinstance(reference, str) and "#" in reference:
                try:
                    others[reference] = self._other(reference, path.parent)
                except SweepError as error:
                    problems.add(*error.problems)
                except OtherFileError as error:
                    problems.add(Problem(at, str(error)))
        points = Expansion(file, _axes_of(others), problems).points()
        problems.add(*rule_problems(file))
        drafts = Drafts(file, path.parent, others, self._cache, problems)
        for point in points:
            drafts.add_point(point)
        builder = StageBuilder(file, path.parent, drafts, self._corpora, self._cache, problems)
        builder.build_all()
        by_section = None if problems else builder.by_section()
        if not problems.concern("report"):
            stages = None if problems else builder.stages
            problems.add(*seed_rule_problems(file.seed_rule, file.report, stages, by_section))
        problems.add(*report_problems(file.report, by_section, file.max_stages, file.seed_rule))
        if problems:
            raise problems.error(points)
        return Sweep(
            path=path,
            name=file.name,
            description=file.description,
            seeds=file.every_seed,
            seed_rule=file.seed_rule,
            stages=builder.stages,
            by_section=builder.by_section(),
            selected=builder.selected(),
            report=file.report,
            paper=file.paper,
            local_corpora=self._corpora.read,
            missing_corpora=self._corpora.replaced,
        )

    def _other(self, reference: str, folder: Path) -> OtherStages:
        """Of a section with `select`, the chosen stages. Raises SweepError, OtherFileError."""
        given, _, name = reference.rpartition("#")
        file = os.path.expanduser(given)
        folders = list(dict.fromkeys([folder, folder.parent, Path.cwd()]))
        path = next((place / file for place in folders if os.path.isfile(place / file)), None)
        if path is None:
            names = [str(p.relative_to(place)) for place in folders for p in place.glob("*.yaml")]
            near = did_you_mean(given, names)
            raise OtherFileError(f"no sweep file {given!r} in {name_list(folders)}{near}")
        sweep = self.load(path)
        if name not in sweep.by_section:
            fault = f"needs a stage of {path} after the #"
            if name:
                fault = f"{path} has no stage {name!r}{did_you_mean(name, sweep.by_section)}"
            raise OtherFileError(f"{fault} (allowed: {name_list(sweep.by_section)})")
        return OtherStages(sweep, sweep.selected.get(name) or sweep.by_section[name])


def _axes_of(others: Mapping[str, OtherStages]) -> dict[str, list[Any]]:
    axes: dict[str, list[Any]] = {}
    stages = (stage for other in others.values() for stage in other.stages)
    for axis, value in (item for stage in stages for item in stage.axes.items()):
        values = axes.setdefault(axis, [])
        if not any(same_value(value, known) for known in values):
            values.append(value)
    return axes


MOST_CLAIMS = 100
"""How many claims a file may make about as many stages as `max_stages` allows. About fewer stages,
it may make more in proportion."""


def report_problems(
    section: ReportSection,
    by_section: Mapping[str, Sequence[Stage]] | None,
    max_stages: int,
    rule: SeedRule | None = None,
) -> Iterator[Problem]:
    """Yield what is wrong with the section, each with its place in the file, or that a rule adds
    seeds until claims are decided that no seed concerns. Without the stages, because something is
    wrong with them, only the form of the texts is checked."""
    stages = sum(len(found) for found in (by_section or {}).values())
    if len(section.stated) * stages > MOST_CLAIMS * max_stages:
        most = MOST_CLAIMS * max_stages // stages
        fault = f"{len(section.stated):,} claims about {stages:,} stages"
        limit = f"allowed: at most {most:,}, unless max_stages says more"
        yield Problem(("report", "claims"), f"{fault} ({limit})")
        return
    catalogue = None if by_section is None else Catalogue(by_section)
    first: dict[Claim, FieldPath] = {}
    seeded: list[bool] = []
    for stated in section.stated:
        try:
            claim = parse_claim(stated.text)
            if (same := first.setdefault(claim.canonical, stated.path)) != stated.path:
                raise ClaimError(f"says the same as {format_path(('claims', *same))}")
            if catalogue is not None:
                numbers = (n for one in compare(claim, catalogue).combinations for n in one.numbers)
                seeded += [seed is not None for number in numbers for seed in number.stages]
        except ClaimError as error:
            seeded.append(True)
            yield Problem(("report", "claims", *stated.path), str(error))
    if rule is not None and rule.until == CLAIMS and seeded and not any(seeded):
        fault = "found claims, but no claim is about models that the sweep trains under seeds"
        yield Problem(UNTIL, fault)
    for part, texts in (("tables", section.tables), ("figures", section.figures)):
        for i, text in enumerate(texts or ()):
            try:
                quantity = parse_quantity(text)
                if catalogue is not None:
                    catalogue.find(quantity, in_table=True)
            except ClaimError as error:
                yield Problem(("report", part, i), str(error))


def seed_rule_problems(
    rule: SeedRule | None,
    section: ReportSection,
    stages: Sequence[Stage] | None,
    by_section: Mapping[str, Sequence[Stage]] | None,
) -> Iterator[Problem]:
    """Yield what is wrong with the rule; without stages, since some are wrong, less is checked.
    `by_section` has the stages of the file's own sections, whose seeds the rule is about."""
    if rule is None:
        return
    if rule.until == CLAIMS and not section.claims:
        yield Problem(UNTIL, "found claims, but report.claims has none to decide")
    if stages is None:
        return
    own = [stage for found in (by_section or {}).values() for stage in found]
    if rule.until != CLAIMS and not any(stage.may_stop_early for stage in own):
        trainings = dict.fromkeys(stage.section for stage in own if stage.spec.trains)
        of = f" of {name_list(trainings)}" if trainings else ""
        yield Problem(UNTIL, f"no training{of} can stop early", "train.stop_at_accuracy")
    seeds = {stage.key: stage.seed for stage in stages}
    for stage in stages:
        read = {seeds[key] for key in stage.parents.values() if key in seeds} - {None}
        if len(read) > 1:
            name = distinguish(stages)[stage.key]
            fault = f"found a rule, and {name} reads trainings under several seeds"
            yield Problem(("seeds",), fault, "a list, since such a stage waits for all of them")
            return
