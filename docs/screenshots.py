"""Takes the README's picture: the report of a sweep.

    python docs/screenshots.py [SWEEP.yaml] [--store fope-store] [--chromium chromium]

Headless Chromium takes it from a store in which the sweep was run.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep

# Headless Chromium on a machine without a network: no first-run pages, no background requests.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--hide-scrollbars"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--window-size=1280,1500", "--virtual-time-budget=2000"),
)


def main() -> None:
    """Take the picture of the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sweep", nargs="?", type=Path, default=Path("sweeps/quickstart.yaml"))
    parser.add_argument("--store", type=Path, default=Path("fope-store"))
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    options = parser.parse_args()
    sweep, store = load_sweep(options.sweep), Store.open(options.store)
    page = store.root / "reports" / sweep.name / "report.html"
    picture = options.out / "report.png"
    with tempfile.TemporaryDirectory() as profile:
        command = [options.chromium, *FLAGS, f"--user-data-dir={profile}"]
        command += [f"--screenshot={picture}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
    print(picture)


if __name__ == "__main__":
    main()
