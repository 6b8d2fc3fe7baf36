"""`fope-lab report`: show a sweep's results."""

from __future__ import annotations

import argparse
from pathlib import Path

from fope_lab.cli.console import make_console, print_notes
from fope_lab.cli.shared_options import Command, add_file, add_json, add_store, add_tracking_uri
from fope_lab.config.environment import OK


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


def _report(options: argparse.Namespace) -> int:
    """Print the report; in its default form, write its files into the store too."""
    from fope_lab.orchestration.sweep_report import keep_report, report_of_sweep
    from fope_lab.report.files import write_figures
    from fope_lab.report.render.json import render_json
    from fope_lab.report.render.latex import render_latex
    from fope_lab.report.render.markdown import render_markdown
    from fope_lab.report.render.terminal import print_report
    from fope_lab.store import Store
    from fope_lab.sweep.load import load_single_sweep

    sweep = load_single_sweep(options.file, Store.open(options.store))
    store = Store.existing(options.store)
    report = report_of_sweep(sweep, store, options.tracking_uri)
    for_a_file = options.json or options.markdown or options.latex or options.figures is not None
    print_notes([sweep], store, make_console(stderr=for_a_file))
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


COMMANDS = (
    Command(
        "report",
        "show a sweep's results so far",
        (add_file, add_store, add_tracking_uri, _add_form),
        _report,
    ),
)
