"""Takes the README's pictures: a sweep's report, and MLflow's comparison of its embeddings.

    python docs/screenshots.py [SWEEP.yaml] [--store fope-store] [--chromium chromium]

Headless Chromium takes the pictures from a store in which the sweep was run. MLflow compares
the runs of a stage in the chart of a metric over context length. (The first page of its comparison
draws parallel coordinates, with a metric's last value only.) Its server runs only while the picture
is taken.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from fope_lab.store import Store
from fope_lab.sweep import load_sweep
from fope_lab.tracking import Tracker, metric_link

# Headless Chromium on a machine without a network: no first-run pages, no background requests.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--hide-scrollbars"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
)


def take(chromium: str, url: str, picture: Path, size: tuple[int, int], wait: int) -> None:
    """Save a picture of `url` after `wait` milliseconds of the page's own time."""
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                *(chromium, *FLAGS, f"--user-data-dir={profile}"),
                *(f"--window-size={size[0]},{size[1]}", f"--virtual-time-budget={wait}"),
                *(f"--screenshot={picture}", url),
            ],
            check=True,
            capture_output=True,
        )
    print(picture)


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Take the pictures of the report and of the comparison in MLflow."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sweep", nargs="?", type=Path, default=Path("sweeps/quickstart.yaml"))
    parser.add_argument("--store", type=Path, default=Path("fope-store"))
    parser.add_argument("--stage", default="perplexity", help="the stage whose runs are compared")
    parser.add_argument("--metric", default="perplexity_by_length")
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    options = parser.parse_args()
    sweep, store = load_sweep(options.sweep), Store.open(options.store)
    report = store.root / "reports" / sweep.name / "report.html"
    take(options.chromium, report.as_uri(), options.out / "report.png", (1280, 1500), 2_000)

    tracker = Tracker(store.root)
    run_ids, experiment = tracker.run_ids(sweep), tracker.experiment_id(sweep)
    compared = [run_ids[stage.key] for stage in sweep.stages if stage.section == options.stage]
    if experiment is None or not compared:
        sys.exit(f"nothing to compare: the stage {options.stage!r} of {sweep.name} has no runs")
    port = free_port()
    pages = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "fope_lab.cli", "ui", "--store", str(store.root), f"--port={port}"],
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{pages}/health").close()
                break
            except OSError:
                time.sleep(0.5)
        url = metric_link(tracker.uri, experiment, compared, options.metric, pages)
        take(options.chromium, url, options.out / "mlflow-compare.png", (1900, 760), 25_000)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
