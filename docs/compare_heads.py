"""Compare the figures in the head of a measured sweep with its collected result.

    python -m docs.compare_heads [FILE…] [--show]

The paragraph of a sweep's head that begins with "Measured" has only figures of the result in
docs/results: times and remarks stand in other paragraphs. Each number of it must be a number of the
result, rounded as it is printed: a mean, an end of an interval, the value of a seed, a published
number, a number of an analysis, a p-value, a count of stages, steps or verdicts; or, if it is no
measurement, a setting of the sweep or a point of a curve. The result must be that of the sweep as
the file is now. What is not so is listed, and the exit code is 1. By default every sweep is looked
at that has such a paragraph or a result. A number may be found by chance: --show says what each one
was found to be.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from docs.generate.results import FOLDER, Result, row_name
from docs.generate.shipped import ROOT, load_shipped, sweep_files
from fope_lab.sweep import Sweep

NUMBER = re.compile(
    r"(?<![\w.@])(?<![A-Za-z]-)"
    r"(?P<digits>−?\d{1,3}(?:,\d{3})+(?:\.\d+)?|−?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"(?P<unit>k\b| %)?(?![\w@]|\.\d)"
)
SHARE = 100
"""A percentage is a hundred times the share that results have."""


@dataclass(frozen=True)
class Figure:
    """A number of a text: `value` and half of its last printed digit, in the unit of results."""

    text: str
    value: float
    tolerance: float

    def is_rounded(self, exact: float) -> bool:
        """Whether `exact` is printed like this number."""
        tie = math.ulp(self.value)  # which of two neighbours a tie goes to is not in the text
        return abs(exact - self.value) <= self.tolerance * (1 + 1e-9) + tie


def measured_paragraph(text: str) -> str | None:
    """The paragraph of a sweep's head that begins with "Measured", in one line, if there is one."""
    head = [line for line in text.splitlines() if line.startswith("#")]
    lines = "\n".join(line.removeprefix("#").strip() for line in head)
    found = [part for part in re.split(r"\n\s*\n", lines) if part.startswith("Measured")]
    return " ".join(found[0].split()) if found else None


def figures(text: str) -> Iterator[Figure]:
    """The numbers of a text; 4k are 4,096, and 5 % are 0.05. Digits within a name are no number."""
    for match in NUMBER.finditer(text):
        number = Decimal(match["digits"].replace(",", "").replace("−", "-"))
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)
        value, tolerance = float(number), 0.5 * 10.0**exponent
        if match["unit"] == "k":
            value, tolerance = value * 1024, 0.0
        elif match["unit"] == " %":
            value, tolerance = value / SHARE, tolerance / SHARE
        yield Figure(match[0], value, tolerance)


def measurements(report: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    """Every number that was measured or published, and what it is: means before single values."""
    for cell in report["cells"]:
        what = _what(cell)
        if cell["mean"] is not None:
            yield cell["mean"], f"the mean of {what}"
    for one in report["beside"]["comparisons"] if report["beside"] else ():
        if one["paper"] is not None:
            yield one["paper"], f"published, {one['row']}, {one['column']}"
    for analysis in report.get("analyses", ()):
        for name, number in analysis["numbers"].items():
            yield number, f"{analysis['stage']}.{name}"
    for cell in report["cells"]:
        yield from ((end, f"an end of the interval of {_what(cell)}") for end in cell["ci95"] or ())
    for cell in report["cells"]:
        for one in cell["values"]:
            if isinstance(one["value"], int | float):  # else a word, such as NaN
                yield one["value"], f"{_what(cell)}, seed {one['seed']}"
    yield from ((c["p"], f"p of {c['text']}") for c in report["claims"] if c["p"] is not None)


def _what(cell: Mapping[str, Any]) -> str:
    at = "" if cell["x"] is None else f"@{cell['x']}"
    return f"{cell['stage']}.{cell['metric']}{at} of {row_name(cell['axes'])}"


def noted(report: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    """The numbers in the notes of the published table."""
    for note in (report["beside"] or {}).get("notes", ()):
        yield from ((number.value, f"published: {note}") for number in figures(note))


def counts(report: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    """How many stages of each name, steps, seeds and verdicts of each kind the result has."""
    for stage in report["stages"]:
        if stage.get("steps") is not None:
            yield stage["steps"], f"the last step of {stage['name']}"
    for name, number in Counter(stage["stage"] for stage in report["stages"]).items():
        yield number, f"the number of stages {name}"
    for verdict, number in Counter(claim["verdict"] for claim in report["claims"]).items():
        yield number, f"the number of claims that are {verdict}"
    yield len(report["claims"]), "the number of claims"
    yield 0.95, "the level of the intervals"
    for number in sorted({cell["n"] for cell in report["cells"]}):
        yield number, "the number of seeds"


def settings(sweep: Sweep, report: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    """The numbers that say what was measured: points of curves, settings, and labels."""
    for x in sorted({cell["x"] for cell in report["cells"] if cell["x"] is not None}):
        yield x, "a point of a curve"
    for stage in sweep.stages:
        for number in _numbers(dataclasses.asdict(stage.spec)):
            yield number, f"a setting of {stage.section}"
    words = [claim["text"] for claim in report["claims"]]
    words += [one["column"] for one in (report["beside"] or {"comparisons": ()})["comparisons"]]
    words += [name for one in report.get("analyses", ()) for name in one["numbers"]]
    for number in re.findall(r"\d+(?:\.\d+)?", " ".join(words)):
        yield float(number), "a number of a claim, of a column or of a name"


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def meanings(paragraph: str, sweep: Sweep, report: Mapping[str, Any]) -> dict[str, str | None]:
    """What each number of a paragraph was found to be; None if the result does not have it."""
    measured = [*measurements(report), *noted(report)]
    others = [*counts(report), *settings(sweep, report)]
    found: dict[str, str | None] = {}
    for figure in figures(paragraph):
        whole = re.fullmatch(r"[\d,]+k?", figure.text) is not None
        known = [*others, *measured] if whole else [*measured, *others]
        fits = (what for exact, what in known if figure.is_rounded(exact))
        found[figure.text] = next(fits, None)
    return found


def problems(file: Path, result: Result | None, *, show: bool = False) -> Iterator[str]:
    """What is wrong with a sweep's figures; with `show`, prints what each of them is."""
    paragraph = measured_paragraph(file.read_text(encoding="utf-8"))
    if result is None:
        if paragraph is not None:
            yield "says what was measured, and docs/results has no result of it"
        return
    sweep = load_shipped(file)
    other, missing = result.other_stages
    if other:
        yield f"docs/results has {other} stages that are not the sweep's"
    if missing:
        yield f"docs/results has no result of {missing} of its stages"
    found = {} if paragraph is None else meanings(paragraph, sweep, result.report)
    for text, what in found.items():
        if what is None:
            yield f"{text} is no number of the result"
        elif show:
            print(f"  {text}: {what}")


def main(arguments: list[str] | None = None) -> int:
    """List what does not agree; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sweeps", nargs="*", metavar="FILE", help="sweep files; default: all")
    parser.add_argument("--show", action="store_true", help="say what each number was found to be")
    options = parser.parse_args(arguments)
    results = by_sweep(FOLDER)
    files = [Path(name).resolve() for name in options.sweeps] or sweep_files()
    for file in files:
        if file not in sweep_files():
            parser.error(f"found {file}, needs a file of {ROOT / 'sweeps'}")
    wrong = 0
    for file in files:
        name = file.relative_to(ROOT).as_posix()
        if options.show and name in results:
            print(name)
        for problem in problems(file, results.get(name), show=options.show):
            print(f"{name}: {problem}")
            wrong += 1
    return 1 if wrong else 0


def by_sweep(folder: Path) -> dict[str, Result]:
    """The collected results of a folder, by the path of their sweep."""
    read = [Result(**json.loads(path.read_text("utf-8"))) for path in sorted(folder.glob("*.json"))]
    return {result.sweep: result for result in read}


if __name__ == "__main__":
    sys.exit(main())
