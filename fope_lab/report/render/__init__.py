"""Renderers of a report: each takes the data, and returns text or figures.

    terminal.py   for people at a terminal, or in a log
    html.py       the page, with all figures inside
    markdown.py   everything but the figures
    latex.py      the tables and the claims
    json.py       everything, for programs

`tables.py`, `curves.py`, `figures.py` and `claims_view.py` prepare what several of them show. A renderer writes
no file: `report/files.py` does.
"""
