"""Renderers of a report: each takes the data, and returns text or figures.

terminal.py for people at a terminal, html.py the page with its figures, markdown.py and latex.py,
json.py for programs. tables.py, figures.py and claims_view.py prepare what several of them show. A
renderer writes no file: report/files.py does.
"""
