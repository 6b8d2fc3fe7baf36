"""`load_sweep`: from a sweep file to a checked `Sweep`.

The steps, in this order:

    Document       the YAML text, with the line of every field        config/yaml_document.py
    SweepFile      the top level of the file                          sweep_file.py
    GridPoint      the value of every axis, and a seed                expand.py
    resolve.py, for each section at each point:
      Cell           a section with the values of its axes              cells.py
      Parent         what the section's `from` means there            parents.py
      StageFields   the section with the values of the axes          apply_axes.py
      Stage          the section checked, with its key, and its       stage_builder.py
                     preparation stages                               preparation_stages.py
    Sweep          all stages, and a report section that fits them    report_check.py

A step reports what is wrong and leaves it out, so that one SweepError holds the problems of all.
"""

from __future__ import annotations

from pathlib import Path

from fope_lab.config.shipped import sweep_path
from fope_lab.config.yaml_document import Document
from fope_lab.no_collections import no_collections
from fope_lab.stages import Resources
from fope_lab.store import Store
from fope_lab.sweep.cross_file import StageReferences, SweepLoader
from fope_lab.sweep.data_stages import PreparationStages
from fope_lab.sweep.expand import expand_grid
from fope_lab.sweep.graph import Sweep
from fope_lab.sweep.model_stages import rule_problems
from fope_lab.sweep.parents import ParentFinder
from fope_lab.sweep.problem_collector import ProblemCollector
from fope_lab.sweep.report_check import report_problems
from fope_lab.sweep.resolve import resolve_stages
from fope_lab.sweep.seed_check import seed_rule_problems
from fope_lab.sweep.stage_builder import StageBuilder
from fope_lab.sweep.sweep_file import read_sweep_file


def load_sweep(path: str | Path, store: Store | None = None) -> Sweep:
    """Read and check a sweep file, or a sweep that comes with fope-lab, by its name (shipped.py).

    Raises SweepError, which holds every problem found.
    Local files that are gone count as `store` recorded them; without a store they are a problem.
    """
    with no_collections():
        return SweepLoader(_load, store).load(sweep_path(path).absolute())


def parse_sweep(text: str, path: Path, store: Store | None = None) -> Sweep:
    """Return the sweep that a file `path` with this text would hold.

    Relative paths start from the file's folder. Otherwise as load_sweep.
    """
    own = path.absolute()

    def load(wanted: Path, loader: SweepLoader) -> Sweep:
        return _load(wanted, loader, text if wanted == own else None)

    return SweepLoader(load, store).load(own)


def _load(path: Path, loader: SweepLoader, text: str | None = None) -> Sweep:
    document = Document(path, text)
    problems = ProblemCollector(document)
    file = read_sweep_file(document, problems)
    if file is None:
        raise problems.error()
    references = StageReferences(path, loader)
    points = expand_grid(file, references.axes(file, problems), problems)
    problems.add(*rule_problems(file))
    axes_known = not problems.concern("grid", "zip", "include", "exclude")
    cpus = float(file.prepare.resources.cpus)
    corpora = loader.corpora
    preparation = PreparationStages(loader.cache, corpora, Resources(cpus=cpus))
    resolved = resolve_stages(
        file,
        points,
        ParentFinder(file.stages, path.parent, references, loader.cache, axes_known),
        StageBuilder(path.parent, file.name, preparation, corpora, loader.cache, axes_known),
        problems,
    )
    by_section = None if problems else resolved.by_section
    if not problems.concern("report"):
        stages = None if problems else resolved.stages
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
        stages=resolved.stages,
        by_section=resolved.by_section,
        selected=resolved.selected,
        report=file.report,
        paper=file.paper,
        local_corpora=corpora.read,
        missing_corpora=corpora.replaced,
    )
