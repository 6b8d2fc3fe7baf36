r"""The tables and the claims of a report as LaTeX, for a paper: booktabs' rules, and nothing else.

Numbers, marks and notes are those of the page. \usepackage{booktabs} belongs into the preamble.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from fope_lab.report.build import Report
from fope_lab.report.claims.judge import Verdict
from fope_lab.report.render.claims_view import ClaimView, describe_tests, group_by_basis
from fope_lab.report.render.table import Table
from fope_lab.report.render.tables import paper_table, report_tables

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
LIGATURE = re.compile(r"(?<=[-–])(?=[-–])|(?<=')(?=')|(?<=`)(?=`)|(?<=,)(?=,)|(?<=[?!])(?=`)")
"""Between two marks of which LaTeX would make another one, as a dash of two hyphens."""
"""What LaTeX would read as a command, and characters that its fonts lack."""


def render_latex(report: Report) -> str:
    """Render every table of the report, and the comparison with the paper's numbers."""
    made = "; ".join(f"{name}: {value}" for name, value in report.provenance.items())
    said = (f"The tables of the sweep {report.name}.", made, PREAMBLE)
    head = [f"% {' '.join(line.split())}" for line in said]
    tables = [*report_tables(report)]
    if report.paper is not None and report.paper.numbers:
        tables.append(paper_table(report.paper))
    parts = ["\n".join(head), *(table_latex(table) for table in tables)]
    if report.verdicts:
        parts.append(claims_latex(report.verdicts))
    return "\n\n".join(parts) + "\n"


PREAMBLE = r"Needs \usepackage{booktabs}."


def table_latex(table: Table) -> str:
    """Render a table as a float with caption and label; the best of a column is bold."""
    return "\n".join(_lines(table))


def claims_latex(verdicts: Sequence[Verdict]) -> str:
    """Render the verdicts on claims as a float, with the rules that decide them as its caption."""
    rows = [line for group in group_by_basis(verdicts) for line in _claim_rows(*group)]
    caption = escaped(f"Claims. {describe_tests(verdicts)}")
    header = ("claim", "where", "verdict", "$p$", "$n$")
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{caption}}}",
            r"  \label{tab:claims}",
            r"  \begin{tabular}{lllrr}",
            r"    \toprule",
            _row(header),
            r"    \midrule",
            *rows,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
    )


def _claim_rows(basis: str, claims: Iterable[ClaimView]) -> Iterator[str]:
    """The rows of some claims, below what they stand for across all columns."""
    if basis:
        across = rf"\multicolumn{{5}}{{p{{\linewidth}}}}{{{escaped(basis)}}}"
        yield rf"    \addlinespace {across} \\"
    for claim in claims:
        for row in claim.rows:
            yield _row(
                (
                    rf"\texttt{{{escaped(claim.text)}}}",
                    escaped(claim.where(row)),
                    escaped(row.verdict.verdict),
                    escaped(row.p.removeprefix("p = ")),
                    "exact" if row.verdict.is_exact else str(row.verdict.n),
                )
            )


def _lines(table: Table) -> Iterator[str]:
    labels = len(table.labels)
    yield r"\begin{table}"
    yield r"  \centering"
    yield rf"  \caption{{{escaped(_sentence(table.title))} {escaped(table.bold_legend)}}}"
    yield rf"  \label{{tab:{label_of(table.title)}}}"
    yield rf"  \begin{{tabular}}{{{'l' * labels}{'r' * (len(table.header) - labels)}}}"
    yield r"    \toprule"
    yield _row(escaped(text) for text in table.header)
    yield r"    \midrule"
    for row in table.rows:
        if row.starts_panel:
            yield r"    \midrule"
        numbers = (
            rf"\textbf{{{escaped(entry.marked)}}}" if entry.best else escaped(entry.marked)
            for entry in row.entries
        )
        yield _row([*map(escaped, (*row.labels, row.seeds)), *numbers])
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield r"\end{table}"


def _row(entries: Iterable[str]) -> str:
    return f"    {' & '.join(entries)} \\\\"


def _sentence(title: str) -> str:
    return f"{title.rstrip('.')}."


def label_of(title: str) -> str:
    """A title as the name of a label or a file: lower case, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "untitled"


def escaped(text: str) -> str:
    """Text as LaTeX prints it, on one line."""
    parts = LIGATURE.split(" ".join(text.split()))
    return "{}".join("".join(PLAIN.get(mark, mark) for mark in part) for part in parts)
