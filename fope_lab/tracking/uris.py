"""Tracking URIs: which are allowed, the file that one names, links to pages, and no passwords.

What is printed, stored or linked to comes from `shown`, `without_secrets` and the links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote, unquote_plus

from fope_lab.tracking.errors import TrackingError

SERVERS = ("http", "https", "databricks")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
HARMLESS = ("host", "port", "dbname", "driver", "charset", "sslmode", "timeout", "connect_timeout")
"""The fields of a query that are shown; any other may hold a password."""
HIDDEN = "…"
PAGES = "http://127.0.0.1:5000"
"""Where `fope-lab ui` serves the pages of a database."""
VIEW = "workflowType=machine_learning"
"""The query that selects experiments; MLflow's default view is of language model traces."""
SHORT = 4
"""A secret with fewer characters is only hidden where it is a word by itself."""
_SQLITE = re.compile(r"(sqlite(?:\+\w+)?)://(?:/([^?]*))?(\?.*)?", re.DOTALL)
_SPECIAL = re.compile(r"[%?]")


def default_uri(store_root: Path) -> str:
    """The URI of the SQLite database in the store, with an absolute path."""
    return sqlite_uri(store_root.expanduser().absolute() / "mlflow.db")


def checked_uri(uri: str) -> str:
    """`uri`, with an absolute path if it is SQLite. Raises TrackingError if it is not MLflow's."""
    allowed = (*SERVERS, *DATABASES)
    scheme = uri if uri in SERVERS else uri.partition(":")[0].split("+")[0].lower()
    if scheme not in allowed:
        raise TrackingError(
            f"the tracking URI {shown(uri)!r} is not an MLflow URI: it must start with one of "
            f"{', '.join(allowed)}, such as http://HOST:5000 or sqlite:////FOLDER/mlflow.db"
        )
    if scheme != "sqlite":
        return uri.rstrip("/")
    match = _SQLITE.fullmatch(uri)
    if match is None or match[2] in (None, "", ":memory:"):
        raise TrackingError(
            f"the tracking URI {shown(uri)!r} names no file: it must be sqlite:///FILE, or "
            "sqlite:////FOLDER/FILE with an absolute path"
        )
    if match[2].startswith("file:"):  # SQLite's own kind of URI
        return uri
    path = Path(unquote(match[2])).expanduser().absolute()
    return sqlite_uri(path, match[1]) + (match[3] or "")


def is_server(uri: str) -> bool:
    """Whether `uri` is a server, which keeps its database and its files itself."""
    return uri in SERVERS or uri.partition(":")[0].lower() in SERVERS


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite database, or None if `uri` is not SQLite."""
    match = _SQLITE.fullmatch(uri)
    if match is None or not match[2] or match[2].startswith("file:"):
        return None
    return Path(unquote(match[2]))


def sqlite_uri(path: Path, scheme: str = "sqlite") -> str:
    """The URI of the SQLite database in the file `path`, which is absolute."""
    # SQLAlchemy decodes %XX in a path, and "?" ends it. MLflow makes the folder of a path that is
    # not decoded, unless the URI names the driver.
    if not _SPECIAL.search(str(path)):
        return f"{scheme}:///{path}"
    driver = "sqlite+pysqlite" if scheme == "sqlite" else scheme
    return f"{driver}:///{_SPECIAL.sub(lambda match: quote(match[0]), str(path))}"


def shown(uri: str) -> str:
    """`uri` without user name and password, and without what else may be secret."""
    if _SQLITE.fullmatch(uri):
        return uri
    head, user, place, query = _parts(uri)
    fields = [field for field in query.split("&") if field]
    kept = [field for field in fields if _is_harmless(field)]
    kept += [HIDDEN] if len(kept) < len(fields) else []
    return head + (f"{HIDDEN}@" if user else "") + place + ("?" + "&".join(kept) if kept else "")


def run_link(uri: str, experiment_id: str, run_id: str, ui: str = PAGES) -> str:
    """The URL of a run's page, on the MLflow server `uri`, or on `ui` if `uri` is a database."""
    return f"{_pages(uri, ui)}/#/experiments/{experiment_id}/runs/{run_id}?{VIEW}"


def page_link(uri: str, page: str, ui: str = PAGES) -> str:
    """The URL of a page, such as a prepared view, that begins with "#"."""
    return f"{_pages(uri, ui)}/{page}&{VIEW}"


def without_secrets(text: str, uri: str) -> str:
    """`text`, such as an error's, without the secrets of `uri`."""
    text = text.replace(uri, shown(uri))
    for secret in sorted(set(_secrets(uri)), key=len, reverse=True):
        word = re.escape(secret)
        pattern = word if len(secret) >= SHORT else rf"(?<!\w){word}(?!\w)"
        text = re.sub(pattern, HIDDEN, text)
    return text


def _pages(uri: str, ui: str) -> str:
    """The address of MLflow's pages: a server's without user name, password and query."""
    if not uri.startswith(("http://", "https://")):
        return ui.rstrip("/")
    head, _, place, _ = _parts(uri)
    return f"{head}{place}".partition("#")[0].rstrip("/")


def _parts(uri: str) -> tuple[str, str, str, str]:
    """The scheme with its slashes, the user with the password, the place, the query of a URI."""
    # A password may hold signs that should have been escaped: all up to the last "@" is the user,
    # and all of the URI if a "?" comes before an "@".
    match = re.match(r"[\w+.-]+://", uri)
    head = match[0] if match else ""
    rest = uri[len(head) :]
    if "@" in rest.partition("?")[2]:
        return head, rest, "", ""
    rest, _, query = rest.partition("?")
    user, _, place = rest.rpartition("@")
    return head, user, place, query


def _secrets(uri: str) -> Iterator[str]:
    """What must not be shown of a URI: whole, in parts, and with or without %XX."""
    if _SQLITE.fullmatch(uri):
        return
    _, user, _, query = _parts(uri)
    fields = [field for field in query.split("&") if not _is_harmless(field)]
    for text in (user, *(field.partition("=")[2] or field for field in fields)):
        decoded = {text, unquote(text), unquote_plus(text)}
        pieces = {piece for form in decoded for piece in re.split(r"[:@?&=/;#]", form)}
        passwords = {form.partition(sign)[2] for form in decoded for sign in ":="}
        for secret in decoded | pieces | passwords:
            yield from filter(None, (secret, quote(secret, safe="")))


def _is_harmless(field: str) -> bool:
    return field.partition("=")[0].lower() in HARMLESS
