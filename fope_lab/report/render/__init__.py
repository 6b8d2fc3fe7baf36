"""Renderers: a report as HTML, Markdown, tables and figures."""
