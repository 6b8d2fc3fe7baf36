"""Reports: the results of a sweep as tables, figures, verdicts and a comparison with its paper.

results/   reads the stages of a plan from the store and aggregates them over seeds
compare/   judges claims, compares with published numbers, marks what is not comparable
build.py   the data of a report, built once from both
render/    turns the data into a page, Markdown, JSON, or lines for a terminal
files.py   writes the files
"""

from fope_lab.report.build import Report, RunLinks, build_report

__all__ = ["Report", "RunLinks", "build_report"]
