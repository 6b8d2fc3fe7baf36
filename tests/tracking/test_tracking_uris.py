"""Which tracking URIs are allowed, and that none shows its password."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.tracking.client import as_tracking_error
from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.tracker import Tracker
from fope_lab.tracking.uris import checked_uri, page_link, run_link, shown, without_secrets

SECRET = "correct-horse"
TEMPLATES = (
    "http://me:{}@host:5000",
    "https://{}@host/mlflow",
    "http://host:5000/?token={}&host=there",
    "postgresql://me:{}@host:5432/db?sslmode=require",
    "postgresql+psycopg2://me@host/db?password={}&host=there",
    "mysql://me:other@host/db?ssl_key_password={}",
    "mssql+pyodbc:///?odbc_connect=DRIVER%3DX%3BPWD%3D{}",
    "http:/me:{}@host",
    "me:{}@host:5000",
)
"""Where a password may be; the last two are mistyped."""


@pytest.mark.parametrize("template", TEMPLATES)
@given(around=st.text(string.punctuation, max_size=4), after=st.text("/@?#:%", max_size=3))
def test_no_password_is_shown_or_linked_to(template: str, around: str, after: str) -> None:
    uri = template.format(around + SECRET + after)
    for text in (
        shown(uri),
        run_link(uri, "1", "r"),
        page_link(uri, "#/experiments/1/runs?a=b"),
        without_secrets(f"can't connect to {uri}: '{around + SECRET + after}' is no port", uri),
    ):
        assert SECRET not in text


def test_what_is_no_secret_is_shown() -> None:
    assert shown("http://host:5000/mlflow") == "http://host:5000/mlflow"
    assert shown("databricks") == "databricks"
    assert shown("sqlite:////home/a@b:c@d/mlflow.db") == "sqlite:////home/a@b:c@d/mlflow.db"
    uri = "postgresql://me:horse@host:5432/db?sslmode=require&password=x"
    assert shown(uri) == "postgresql://…@host:5432/db?sslmode=require&…"
    text = "connection to host, port 5432, with the password {} and the extra {}"
    assert without_secrets(text.format("horse", "x"), uri) == text.format("…", "…")
    link = run_link("https://me:pass@host/mlflow/?a=b", "1", "r")
    assert link.startswith("https://host/mlflow/#/experiments/1/runs/r")


@pytest.mark.parametrize(
    ("uri", "checked"),
    [
        ("sqlite:////tmp/a.db?timeout=5", "sqlite:////tmp/a.db?timeout=5"),
        ("sqlite:////tmp/a%20b.db", "sqlite:////tmp/a b.db"),
        ("sqlite:////tmp/a%3Fb.db", "sqlite+pysqlite:////tmp/a%3Fb.db"),
        ("http://host:5000/", "http://host:5000"),
    ],
)
def test_a_uri_means_what_it_means_to_mlflow(uri: str, checked: str) -> None:
    assert checked_uri(uri) == checked
    assert checked_uri(checked) == checked


@pytest.mark.parametrize(
    ("uri", "fault"),
    [
        *((uri, "names no file") for uri in ("sqlite://", "sqlite:///", "sqlite:///:memory:")),
        ("mlruns", "must start with one of http, https"),
        ("ftp://me:secret@host", "must start with one of http, https"),
    ],
)
def test_a_uri_that_mlflow_can_not_use_is_an_error(tmp_path: Path, uri: str, fault: str) -> None:
    with pytest.raises(TrackingError, match=fault) as caught:
        Tracker(tmp_path, uri)
    assert "secret" not in str(caught.value)


def test_a_relative_database_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert checked_uri("sqlite:///x.db") == f"sqlite:///{tmp_path / 'x.db'}"


def test_the_command_that_finishes_an_upload_can_be_pasted_and_has_no_password(
    tmp_path: Path,
) -> None:
    store = tmp_path / "a b"
    assert Tracker(store).sync_command == f"fope-lab sync --store '{store}'"
    named = Tracker(store, f"http://me:{SECRET}@host")
    assert named.sync_command == f"fope-lab sync --store '{store}' --tracking-uri 'http://…@host'"


def test_an_error_is_one_line_without_the_password() -> None:
    uri = "http://me:secret@host:5000"
    error = as_tracking_error(RuntimeError(f"first {uri}\nsecond"), uri)
    assert str(error) == "MLflow at http://…@host:5000: first http://…@host:5000"
    known = TrackingError("as it is")
    assert as_tracking_error(known, uri) is known
    assert "RuntimeError" in str(as_tracking_error(RuntimeError(), uri))
