"""Compare every quotation of the papers' pages and of the claims with the papers' texts.

    python -m docs.compare_quotes fope=fope.txt resonance=resonance.txt p_rope=p_rope.txt

A text is what a converter makes of a paper; none comes with fope-lab. A line is printed for each
quotation: whether it is in the text and, if not, how far it goes. `[...]` in a quotation stands for
words that are left out. The exit code is 1 if a quotation is not found, and 2 if an argument is
wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from docs.generate.papers import load_paper, paper_files
from docs.paper_text import PaperText


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each quotation of the given papers; returns the exit code."""
    papers = {file.stem: file for file in paper_files()}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "texts",
        nargs="+",
        metavar="PAPER=FILE",
        type=lambda text: _given(text, papers),
        help=f"a paper ({', '.join(papers)}) and the file of its text",
    )
    missing = 0
    for name, text in parser.parse_args(arguments).texts:
        missing += compare(name, load_paper(papers[name]).quotes(), text)
    return 1 if missing else 0


def compare(name: str, quotes: Iterable[tuple[str, str]], text: str) -> int:
    """Print a line for each quotation, given with its place; returns how many are not found."""
    paper = PaperText(text)
    found = [(where, quote, paper.find(quote)) for where, quote in quotes]
    for where, quote, fault in found:
        print(f"{'ok' if fault is None else 'NOT FOUND'}  {name}  {where}: {quote}")
        if fault is not None:
            print(f"    {fault}")
    missing = sum(fault is not None for _, _, fault in found)
    print(f"{name}: {len(found)} quotations, {missing} not found")
    return missing


def _given(argument: str, papers: Iterable[str]) -> tuple[str, str]:
    """The paper and the text of an argument PAPER=FILE."""
    name, sign, file = argument.partition("=")
    if not sign or name not in papers:
        raise argparse.ArgumentTypeError(
            f"found {argument!r}, needs PAPER=FILE with one of {', '.join(papers)}"
        )
    try:
        return name, Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{file} cannot be read: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
