r"""The tables and the claims of a report as LaTeX, for a paper: booktabs' rules, and nothing else.

Numbers, marks and notes are those of the page. \usepackage{booktabs} belongs into the preamble.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fope_lab.report.build import Report
from fope_lab.report.claims.judge import Verdict
from fope_lab.report.render.claims_view import describe_tests, group_by_basis
from fope_lab.report.render.tables import Table, paper_table, report_tables

PLAIN = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "#$%&_"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "–": "--",
    "…": r"\dots{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "∞": r"$\infty$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"\S{}",
    "→": r"$\rightarrow$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "·": r"$\cdot$",
    "θ": r"$\theta$",
    "λ": r"$\lambda$",
    "π": r"$\pi$",
    "σ": r"$\sigma$",
    "\u00a0": "~",
}
"""What LaTeX would read as a command, and characters that its fonts lack."""
LIGATURE = re.compile(r"(?<=[-–])(?=[-–])|(?<=')(?=')|(?<=`)(?=`)|(?<=,)(?=,)|(?<=[?!])(?=`)")
"""Between two marks of which LaTeX would make another one, as a dash of two hyphens."""


def render_latex(report: Report) -> str:
    """Render every table of the report, and the comparison with the paper's numbers."""
    made = "; ".join(f"{name}: {value}" for name, value in report.provenance.items())
    said = (f"The tables of the sweep {report.name}.", made, r"Needs \usepackage{booktabs}.")
    tables = [*report_tables(report)]
    if report.paper is not None and report.paper.numbers:
        tables.append(paper_table(report.paper))
    parts = ["\n".join(f"% {' '.join(line.split())}" for line in said)]
    parts += map(_table, tables)
    if report.verdicts:
        parts.append(_claims(report.verdicts))
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    labels = len(table.labels)
    rows = []
    for row in table.rows:
        numbers = (
            rf"\textbf{{{escaped(entry.marked)}}}" if entry.best else escaped(entry.marked)
            for entry in row.entries
        )
        rows += [r"    \midrule"] * row.starts_panel
        rows.append(_row([*map(escaped, (*row.labels, row.seeds)), *numbers]))
    return _float(
        f"{escaped(table.title.rstrip('.') + '.')} {escaped(table.legend('Bold:'))}",
        label_of(table.title),
        "l" * labels + "r" * (len(table.header) - labels),
        map(escaped, table.header),
        rows,
    )


def _claims(verdicts: Sequence[Verdict]) -> str:
    rows = []
    for basis, claims in group_by_basis(verdicts):
        if basis:  # what the claims below stand for, across all columns
            across = rf"\multicolumn{{5}}{{p{{\linewidth}}}}{{{escaped(basis)}}}"
            rows.append(rf"    \addlinespace {across} \\")
        rows += [
            _row(
                (
                    rf"\texttt{{{escaped(claim.text)}}}",
                    escaped(claim.where(row)),
                    escaped(row.verdict.verdict),
                    escaped(row.p.removeprefix("p = ")),
                    row.seeds,
                )
            )
            for claim in claims
            for row in claim.rows
        ]
    caption = escaped(f"Claims. {describe_tests(verdicts)}")
    return _float(caption, "claims", "lllrr", ("claim", "where", "verdict", "$p$", "$n$"), rows)


def _float(
    caption: str, label: str, columns: str, header: Iterable[str], rows: Iterable[str]
) -> str:
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{caption}}}",
            rf"  \label{{tab:{label}}}",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"    \toprule",
            _row(header),
            r"    \midrule",
            *rows,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
    )


def _row(entries: Iterable[str]) -> str:
    return f"    {' & '.join(entries)} \\\\"


def label_of(title: str) -> str:
    """A title as the name of a label or a file: lower case, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "untitled"


def escaped(text: str) -> str:
    """Text as LaTeX prints it, on one line."""
    parts = LIGATURE.split(" ".join(text.split()))
    return "{}".join("".join(PLAIN.get(mark, mark) for mark in part) for part in parts)
