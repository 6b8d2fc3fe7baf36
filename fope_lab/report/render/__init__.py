"""Renderers of a report: each takes the data, and returns text or figures.

terminal.py for people at a terminal, documents.py as a page, Markdown or LaTeX, json.py for
programs. tables.py, figures.py and claims_view.py prepare what several of them show. A
renderer writes no file: report/files.py does.
"""
