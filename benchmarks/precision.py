"""Sweeps in float32 and in bfloat16: time of their trainings, and verdicts side by side.

    python benchmarks/precision.py [--sweeps FILE …] [--store DIR] [--json FILE]

Each sweep runs with all its seeds, once with each `train.precision` in all of its trainings.
Evaluations have float32 in both. `trainings` is what the trainings took, added up: as many of them
run at a time as the machine has cores. The shipped miniatures have float32, since a processor
without an instruction for bfloat16 takes several times as long in it; here is what the other choice
would change on a processor that has one (fope_lab/planning/bfloat16.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from fope_lab.config.atomic_files import write_atomic
from fope_lab.config.devices import cores
from fope_lab.config.processor import processor

SWEEPS = ("sweeps/mini/p-rope-table2.yaml", "sweeps/mini/resonance-table1-released.yaml")
PRECISIONS = ("float32", "bfloat16")
Found = Mapping[str, Mapping[str, Any]]
"""The report of a sweep, by precision."""


def in_precision(sweep: Mapping[str, Any], precision: str) -> dict[str, Any]:
    """The sweep with that precision in each stage that trains."""
    stages = {
        name: {**stage, "train": {**stage["train"], "precision": precision}}
        if isinstance(stage.get("train"), dict)
        else stage
        for name, stage in sweep["stages"].items()
    }
    return {**sweep, "stages": stages}


def report(file: Path, precision: str, store: Path) -> dict[str, Any]:
    """Run a sweep in that precision, and return its report; what the run prints is in a log."""
    copy = store / f"{file.stem}-{precision}.yaml"
    sweep = yaml.safe_load(file.read_text(encoding="utf-8"))
    write_atomic(copy, yaml.safe_dump(in_precision(sweep, precision), allow_unicode=True))
    command = [sys.executable, "-m", "fope_lab.cli"]
    store_option = ["--store", str(store / precision)]
    with copy.with_suffix(".log").open("w", encoding="utf-8") as log:
        subprocess.run([*command, "run", str(copy), *store_option], check=True, stdout=log)
    shown = subprocess.run(
        [*command, "report", str(copy), *store_option, "--json"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return dict(json.loads(shown.stdout))


def training_seconds(found: Mapping[str, Any]) -> list[float]:
    """The seconds of each training; they alone have steps."""
    return [stage["seconds"] for stage in found["stages"] if stage["steps"]]


def summary(found: Mapping[str, Any]) -> str:
    """How long the trainings took, and how many verdicts there are of each kind."""
    seconds = training_seconds(found)
    kinds = Counter(claim["verdict"] for claim in found["claims"])
    verdicts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"{len(seconds)} trainings {sum(seconds) / 60:.1f} min; {verdicts}"


def figures(file: Path, found: Found) -> dict[str, Any]:
    """What is kept of a sweep."""
    wide, narrow = (found[name] for name in PRECISIONS)
    return {
        "sweep": str(file),
        "seconds": {name: sum(training_seconds(one)) for name, one in found.items()},
        "trainings": {name: len(training_seconds(one)) for name, one in found.items()},
        "claims": [
            {
                "claim": claim["text"],
                "axes": claim["axes"],
                "float32": {"verdict": claim["verdict"], "reason": claim["reason"]},
                "bfloat16": {"verdict": other["verdict"], "reason": other["reason"]},
            }
            for claim, other in zip(wide["claims"], narrow["claims"], strict=True)
        ],
    }


def verdicts(kept: Mapping[str, Any]) -> Iterator[str]:
    """The verdicts of a sweep side by side, and the time of bfloat16 as a share of float32's."""
    wide, narrow = (kept["seconds"][name] for name in PRECISIONS)
    alike = sum(one["float32"]["verdict"] == one["bfloat16"]["verdict"] for one in kept["claims"])
    yield f"  time in bfloat16 over float32: {narrow / wide:.2f}"
    yield f"  verdicts alike: {alike} of {len(kept['claims'])}"
    for claim in kept["claims"]:
        axes = ", ".join(f"{axis} {value}" for axis, value in claim["axes"].items())
        yield f"  {claim['claim']}" + (f" ({axes})" if axes else "")
        for name in PRECISIONS:
            yield f"    {name:8}  {claim[name]['verdict']}: {claim[name]['reason']}"


def main() -> None:
    """Run the sweeps and print a table of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sweeps", nargs="+", type=Path, default=[Path(one) for one in SWEEPS])
    parser.add_argument("--store", type=Path, help="where the runs stay (default: nowhere)")
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    given = parser.parse_args()
    for file in given.sweeps:  # before the first of them runs for an hour
        if not file.is_file():
            parser.error(f"--sweeps: found {file}, which is no file")
    device = f"{processor()}, {cores()} cores, torch {torch.__version__}"
    print(device)
    kept = []
    with contextlib.ExitStack() as stack:
        store = given.store or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store.mkdir(parents=True, exist_ok=True)
        for file in given.sweeps:
            print(file, flush=True)
            found = {}
            for name in PRECISIONS:
                found[name] = report(file, name, store)
                print(f"  {name:8}  {summary(found[name])}", flush=True)
            kept.append(figures(file, found))
            print("\n".join(verdicts(kept[-1])), flush=True)
            if given.json:  # each time, so that an early end leaves what was measured
                content = {"device": device, "figures": kept}
                write_atomic(given.json, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
