"""Reports: the results of a sweep as tables, figures, verdicts and a comparison with its paper.

results/   reads the stages of a plan from the store and aggregates them over seeds
compare/   compares with published numbers, marks what is not comparable
claims/    judges claims, and says which seeds they still need
build.py   the data of a report, built once from all of it (for orchestration/run_sweeps.py)
render/    turns the data into a page, Markdown, JSON, or lines for a terminal
files.py   writes the files
"""

from fope_lab.report.build import Report, RunLinks, build_report

__all__ = ["Report", "RunLinks", "build_report"]
