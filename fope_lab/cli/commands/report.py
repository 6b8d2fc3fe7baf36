"""`fope-lab report`: show a sweep's results."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fope_lab.cli.at_commit import load_at_commit
from fope_lab.cli.console import make_console, print_notes
from fope_lab.cli.shared_options import add_json, add_store, add_tracking_uri
from fope_lab.config.environment import OK

if TYPE_CHECKING:
    from fope_lab.report.pair import Side

HELP = "show a sweep's results so far, or compare two sweeps"


def _add_form(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument("--markdown", action="store_true", help="print the whole report as Markdown")
    form.add_argument(
        "--latex",
        action="store_true",
        help="print every table and the claims as LaTeX, with the rules of booktabs",
    )
    form.add_argument(
        "--figures",
        metavar="DIR",
        help="write every figure into a folder, as SVG and as PDF, and print the files' names",
    )


def _add_sweeps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a sweep file, the name of a sweep that comes with fope-lab, or FILE@COMMIT: the file"
        " as it was at a commit",
    )
    parser.add_argument(
        "other",
        nargs="?",
        metavar="OTHER",
        help="show this sweep beside FILE, and what changed from FILE to it: another sweep file, or"
        " the same one at a commit, as in `fope-lab report sweep.yaml@v1 sweep.yaml`",
    )


def _add_other_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--other-store",
        metavar="DIR",
        help="the folder that holds the stages of OTHER (default: that of --store)",
    )


ARGUMENTS = (_add_sweeps, add_store, _add_other_store, add_tracking_uri, _add_form)


def run(options: argparse.Namespace) -> int:
    """Print the report; in its default form, write its files into the store too."""
    if options.other is not None or options.other_store is not None:
        return _run_pair(options)
    from fope_lab.orchestration.sweep_report import keep_report, report_of_sweep
    from fope_lab.report.files import write_figures
    from fope_lab.report.render.json import render_json
    from fope_lab.report.render.latex import render_latex
    from fope_lab.report.render.markdown import render_markdown
    from fope_lab.report.render.terminal import print_report
    from fope_lab.store import Store

    sweep, _ = load_at_commit(options.file, Store.open(options.store))
    store = Store.existing(options.store)
    report = report_of_sweep(sweep, store, options.tracking_uri)
    print_notes([sweep], store, make_console(stderr=_is_for_a_file(options)))
    if options.json:
        print(render_json(report))
    elif options.markdown:
        print(render_markdown(report), end="")
    elif options.latex:
        print(render_latex(report), end="")
    elif options.figures is not None:
        for path in write_figures(report, Path(options.figures)):
            print(path)
    else:
        console = make_console()
        print_report(report, console)
        try:
            text = f"report: {keep_report(report, store)}"
        except OSError as error:
            text = f"report: not written, the store is read-only ({error})"
        console.print(text, soft_wrap=True, highlight=False, markup=False)
    return OK


def _run_pair(options: argparse.Namespace) -> int:
    """Print two sweeps beside each other; in the default form, write their page into the store."""
    from fope_lab.report.files import write_pair
    from fope_lab.report.pair import PairError, compare_sweeps
    from fope_lab.report.render.pair import pair_json, pair_markdown, print_pair

    if options.other is None:
        raise PairError("--other-store is for the report of two sweeps: name OTHER, too")
    if options.latex or options.figures is not None:
        flag = "--latex" if options.latex else "--figures"
        raise PairError(f"{flag} is for the report of one sweep: leave out {options.other}")
    first, second = _sides(options)
    pair = compare_sweeps(first, second)
    if options.json:
        print(pair_json(pair))
    elif options.markdown:
        print(pair_markdown(pair), end="")
    else:
        console = make_console()
        print_pair(pair, console)
        try:
            text = f"comparison: {write_pair(pair)}"
        except OSError as error:
            text = f"comparison: not written, the store is read-only ({error})"
        console.print(text, soft_wrap=True, highlight=False, markup=False)
    return OK


def _sides(options: argparse.Namespace) -> tuple[Side, Side]:
    """Both sweeps, under names that tell them apart."""
    from fope_lab.report.pair import Side
    from fope_lab.store import Store

    texts = (options.file, options.other)
    folders = (options.store, options.other_store or options.store)
    stores = [Store.existing(folder) for folder in folders]
    loaded = [load_at_commit(text, store) for text, store in zip(texts, stores, strict=True)]
    names = [sweep.name + (f"@{commit}" if commit else "") for sweep, commit in loaded]
    if names[0] == names[1]:
        names = list(texts)
    if names[0] == names[1]:
        names = [f"{name} in {store.root}" for name, store in zip(names, stores, strict=True)]
    first, second = (
        Side(name, sweep, store, commit)
        for name, (sweep, commit), store in zip(names, loaded, stores, strict=True)
    )
    return first, second


def _is_for_a_file(options: argparse.Namespace) -> bool:
    """Whether standard output is for a program or a file, so that notes belong elsewhere."""
    return options.json or options.markdown or options.latex or options.figures is not None
