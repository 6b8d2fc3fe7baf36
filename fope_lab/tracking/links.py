"""Links to MLflow's pages: on the server, or for a database on the server that `ui` starts."""

from __future__ import annotations

from fope_lab.tracking.uris import page_address

PAGES = "http://127.0.0.1:5000"
VIEW = "workflowType=machine_learning"
"""The query that selects experiments; MLflow's default view is of language model traces."""


def run_link(uri: str, experiment_id: str, run_id: str, ui: str = PAGES) -> str:
    """The URL of a run's page, on the MLflow server `uri`, or on `ui` if `uri` is a database."""
    return f"{_pages(uri, ui)}/#/experiments/{experiment_id}/runs/{run_id}?{VIEW}"


def page_link(uri: str, page: str, ui: str = PAGES) -> str:
    """The URL of a page, such as a prepared view, that begins with "#"."""
    return f"{_pages(uri, ui)}/{page}&{VIEW}"


def _pages(uri: str, ui: str) -> str:
    return page_address(uri) if uri.startswith(("http://", "https://")) else ui.rstrip("/")
