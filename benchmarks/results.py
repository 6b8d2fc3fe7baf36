"""All figures about speed that this project publishes, measured and kept with their origin.

    python benchmarks/results.py [PART …]      measure these parts, or all
    python benchmarks/results.py --render      write RESULTS.md from what was measured
    python benchmarks/results.py --check       exit with 1 if RESULTS.md says something else

Each part is a benchmark in a process of its own. What it printed is kept in benchmarks/results with
its figures, its command, the commit, the machine and the load before it began. RESULTS.md shows
these files and nothing else. Measure on a machine where nothing else runs, from a clean checkout:
a commit with changes is kept as `-dirty`. `make bench` measures all.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpu import Part, machine, run_part, script

from fope_lab.devices import processor

FOLDER = Path(__file__).resolve().parent
KEPT = FOLDER / "results"
PAGE = FOLDER / "RESULTS.md"
HOUR = 3600  # seconds
HEAD = """# Figures about speed

`python benchmarks/results.py` measures these parts and writes this page. The figures of each, as
JSON, are in `benchmarks/results`. What the columns mean, and what was aimed at, is in the first
lines of each script. `load` is the number of processes that ran before a part began: above 0.5,
times are those of a machine that did something else, too. Ratios that are measured side by side
suffer less from that."""


def _plain(name: str) -> tuple[str, ...]:
    """The command of a benchmark that writes no JSON."""
    return (f"benchmarks/{name}.py",)


PARTS: Mapping[str, Part] = {
    "quickstart": Part("The quickstart, from an empty store", script("quickstart"), HOUR),
    "training": Part("Training beside Hugging Face's Trainer", script("training"), HOUR),
    "attention": Part("Attention by length, and packed documents", script("attention"), HOUR),
    "cpus": Part("One training on two CPUs, and two on one each", script("cpus"), HOUR),
    "embeddings": Part("Each embedding beside rope", script("embeddings"), HOUR),
    "scales": Part("Parameters, FLOPs and memory of each size", script("scales"), HOUR),
    "parity": Part("Logits beside Hugging Face's", script("parity"), HOUR),
    "passkey": Part("Passkeys by reading and by generating", script("passkey"), HOUR),
    "long context": Part("Memory of long contexts", script("long_context"), HOUR),
    "checkpoints": Part("Sharded checkpoints", script("checkpoints"), HOUR),
    "preparing data": Part("Preparation of data", _plain("prepare_data"), HOUR),
    "planning": Part("Reading and planning a sweep", _plain("planning"), HOUR),
    "controller": Part("What the controller costs", _plain("controller"), HOUR),
    "tracking": Part("What tracking costs", _plain("tracking"), HOUR),
    "large sweep": Part("A finished sweep of 1,000 stages", _plain("large_sweep"), HOUR),
}


def measure(name: str) -> dict[str, Any]:
    """Run a part; returns what is kept of it."""
    load = os.getloadavg()[0]
    began = datetime.now(UTC)
    figures = KEPT / f"{name}.figures"
    about = machine()
    try:
        measured = run_part(PARTS[name], toy=False, figures=figures)
    finally:
        figures.unlink(missing_ok=True)
    command = ["python", *(word for word in measured["command"] if word not in ("--json", "FILE"))]
    return {
        "command": " ".join(command),
        "commit": about["commit"],
        "date": began.date().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "load": round(load, 2),
        "python": about["python"],
        "torch": about["packages"]["torch"],
        **{key: measured[key] for key in ("exit", "seconds", "output", "figures")},
    }


def kept() -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts that were measured, in the order of PARTS."""
    for name in PARTS:
        path = KEPT / f"{name}.json"
        if path.exists():
            yield name, json.loads(path.read_text(encoding="utf-8"))


def page(parts: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """The text of RESULTS.md."""
    lines = [HEAD]
    for name, one in parts:
        full, _, changed = (one["commit"] or "unknown").partition("-")
        commit = "-".join(filter(None, (full[:7], changed)))
        lines += [
            "",
            f"## {PARTS[name].shows}",
            "",
            f"`{one['command']}` on {one['date']}, commit {commit}, in {one['seconds']:.0f} s.",
            f"{one['machine']}, load {one['load']}; Python {one['python']}, torch {one['torch']}.",
            "",
            "```text",
            *one["output"],
            "```",
        ]
    return "\n".join(lines) + "\n"


def arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--check", action="store_true", help="measure and write nothing")
    given = parser.parse_args()
    unknown = [name for name in given.parts if name not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r} (allowed: {', '.join(PARTS)})")
    return given


def main() -> int:
    """Measure, and write the page; return the exit code."""
    given = arguments()
    if given.check:
        if PAGE.read_text(encoding="utf-8") == page(kept()):
            return 0
        print(f"{PAGE.name} is not what --render writes", file=sys.stderr)
        return 1
    failed = []
    KEPT.mkdir(exist_ok=True)
    for name in () if given.render else given.parts or PARTS:
        print(f"{name} …", end=" ", flush=True)
        measured = measure(name)
        print(f"exit {measured['exit']} in {measured['seconds']:.0f} s", flush=True)
        if measured["exit"] != 0:  # what was measured before stays
            failed.append(name)
            print("\n".join(measured["output"]), file=sys.stderr)
            continue
        (KEPT / f"{name}.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(kept()), encoding="utf-8")
    PAGE.write_text(page(kept()), encoding="utf-8")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
