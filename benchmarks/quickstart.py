"""Wall time of the quickstart's sweep from an empty store, with all that `fope-lab run` does.

    python benchmarks/quickstart.py [--runs 1] [--json FILE]

The README says how long it takes. Installation, which `make quickstart` does first, depends on the
network and is not part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fope_lab.config.atomic_files import write_atomic

SWEEP = "sweeps/quickstart.yaml"


def seconds() -> float:
    """Run the sweep in a store of its own."""
    with tempfile.TemporaryDirectory() as store:
        command = [sys.executable, "-m", "fope_lab.cli", "run", SWEEP, "--store", store]
        started = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - started


def main() -> None:
    """Print the minutes of each run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    given = parser.parse_args()
    minutes = []
    for _ in range(given.runs):
        minutes.append(seconds() / 60)
        print(f"{SWEEP}: {minutes[-1]:.1f} min on {os.cpu_count()} cores", flush=True)
    if given.json:
        write_atomic(given.json, json.dumps({"minutes": minutes}) + "\n")


if __name__ == "__main__":
    main()
