"""Write the results that the documentation shows, from a store in which sweeps were run.

    python -m docs.collect_results --store DIR sweeps/quickstart.yaml …

The file docs/results/NAME.json has the report as `fope-lab report --json` prints it, without what
depends on the machine, and the commit that made its stages. Only a finished sweep is taken, and
only if one clean commit made all of it, so that each number can be made again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from docs.generate.shipped import ROOT, sweep_files
from fope_lab.config.problems import UserError
from fope_lab.orchestration.run_sweeps import report_of_sweep
from fope_lab.report.render.json import report_json
from fope_lab.store.root import Store
from fope_lab.store.state import Status
from fope_lab.sweep import load_sweep

MADE_AT = "stages made at commit"
KEPT = ("sweep", "generated", "counts", "cells", "beside", "analyses", "claims", "stages")
OF_A_STAGE = ("key", "name", "stage", "kind", "state", "seed", "train_length", "seconds", "steps")


def main() -> None:
    """Write a file for each sweep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sweeps", nargs="+", metavar="FILE", help="a shipped sweep file")
    parser.add_argument("--store", required=True, metavar="DIR", help="the store of their runs")
    options = parser.parse_args()
    store = Store.existing(options.store)
    for name in options.sweeps:
        path = ROOT / "docs" / "results" / f"{file_name(Path(name))}.json"
        collected = collect(Path(name), store)
        path.write_text(
            json.dumps(collected, indent=0, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        print(f"{path} ({path.stat().st_size // 1024} KiB)")


def file_name(file: Path) -> str:
    """The name of the sweep's file, with its folder's where another shipped sweep has the name."""
    alike = [shipped for shipped in sweep_files() if shipped.stem == file.stem]
    return file.stem if len(alike) < 2 else f"{file.resolve().parent.name}-{file.stem}"


def collect(file: Path, store: Store) -> dict[str, Any]:
    """The result of a finished sweep that one clean commit made."""
    try:
        report = report_json(report_of_sweep(load_sweep(file), store, None))
    except UserError as error:
        sys.exit(f"error: {error}")
    commits = report["provenance"].get(MADE_AT, "")
    commit = commits.partition(" ")[0]
    if "," in commits or commit.endswith("+") or not commit:
        sys.exit(f"{file}: found stages made at {commits or 'no commit'}, needs one clean commit")
    counts = report["counts"]
    if counts["done"] + counts.get(Status.NOT_NEEDED, 0) != counts["total"]:
        found = ", ".join(f"{count} {name}" for name, count in counts.items())
        sys.exit(f"{file}: found {found}, needs a finished sweep")
    report["stages"] = [s for s in report["stages"] if s["state"] == Status.DONE]
    report["sweep"]["path"] = str(file)
    for cell in report["cells"]:
        cell["values"] = [
            {"seed": v["seed"], "value": v["value"], "key": v["key"]} for v in cell["values"]
        ]
    report["cells"] = [c for c in report["cells"] if not c["metric"].endswith("_by_position")]
    report["stages"] = [{k: s[k] for k in OF_A_STAGE} for s in report["stages"]]
    command = f"fope-lab run {file}"
    kept = {key: report[key] for key in KEPT}
    return {"sweep": str(file), "command": command, "commit": commit, "report": kept}


if __name__ == "__main__":
    main()
