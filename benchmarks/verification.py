"""What it costs to check that files hold what was written.

    python benchmarks/verification.py STORE [--megabytes 1024]

Prints the seconds of `fope-lab store verify` for a store with finished sweeps, the share that the
checks of its parents, at the start and at the end, have in the time of each kind of stage, and the
seconds for a checkpoint of one GiB. Every check runs in a process of its own. The files are in the
page cache, so this is the cost of hashing; a cold disk adds its time of reading once, which the
stage would otherwise spend when it loads the model.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from fope_lab.store.attempts import WorkTime
from fope_lab.store.checkpoint import write_manifest
from fope_lab.store.root import Store

CHECKS = 2
"""How often an attempt checks each parent."""
CHECK = (
    "import sys, time; from pathlib import Path; from fope_lab.store.checkpoint import"
    " damaged_files; t = time.perf_counter(); assert not damaged_files(Path(sys.argv[1]));"
    " print(time.perf_counter() - t)"
)


def seconds_to_check(checkpoint: Path) -> float:
    """The seconds that a fresh process takes to compare every byte of a checkpoint."""
    command = [sys.executable, "-c", CHECK, str(checkpoint)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--megabytes", type=int, default=1024)
    options = parser.parse_args()
    store = Store.open(options.store)

    started = time.perf_counter()
    command = [sys.executable, "-m", "fope_lab.cli", "store", "verify", "--store", str(store.root)]
    code = subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode
    size = sum(path.stat().st_size for path in store.root.rglob("*") if path.is_file())
    print(
        f"store verify: {time.perf_counter() - started:.2f} s in all with start-up, exit code"
        f" {code}, {len(store.folders())} stages, {size / 1e6:.1f} MB"
    )

    keys = {folder.path.name: folder for folder in store.folders()}
    checked: dict[str, float] = defaultdict(float)
    worked: dict[str, float] = defaultdict(float)
    for folder in store.folders():
        parents = (folder.request() or {}).get("parents", {})
        for key in parents.values():
            checkpoint = keys[key].final_checkpoint() if key in keys else None
            if checkpoint is not None:
                checked[folder.path.parent.name] += CHECKS * seconds_to_check(checkpoint.path)
        taken = folder.time_taken()
        worked[folder.path.parent.name] += 0.0 if taken is None else taken.seconds
    for kind, seconds in sorted(checked.items()):
        print(
            f"{kind}: parents checked in {seconds:.3f} s of {worked[kind]:.1f} s"
            f" ({seconds / worked[kind]:.2%})"
        )

    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary)
        with (path / "model.safetensors").open("wb") as file:
            for _ in range(options.megabytes):
                file.write(os.urandom(1 << 20))
        write_manifest(path, "pretrain/key", 1, 1, {}, WorkTime())
        print(f"a checkpoint of {options.megabytes} MiB: {seconds_to_check(path):.2f} s")


if __name__ == "__main__":
    main()
