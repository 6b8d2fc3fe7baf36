"""Run the tutorial's commands in an empty folder, and record what they print.

    python -m docs.record_tutorial

The page docs/pages/tutorial.md names the commands; docs/tutorial/transcript.json gets the outputs,
and docs/tutorial/figure.svg the figure. A command that fails ends the recording.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docs.generate.transcripts import RECORD, steps
from fope_lab.store.checkout import Checkout

COLUMNS = 160
FIGURE = "figures/perplexity-by-context-length.svg"


def run(commands: Iterable[str], folder: Path) -> list[dict[str, Any]]:
    """Run commands in a folder, one after another, as a user's shell would.

    Raises CalledProcessError for one that fails.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FOPE_LAB", "MLFLOW"))}
    environment.pop("RAY_ADDRESS", None)
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment |= {"PATH": path, "COLUMNS": str(COLUMNS), "TERM": "dumb"}
    record = []
    for command in commands:
        started = time.monotonic()
        shell = ["bash", "-c", command]
        done = subprocess.run(
            shell, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        output = (done.stdout + done.stderr).replace(str(folder), "~/first")
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, output)
        seconds = round(time.monotonic() - started, 1)
        record.append({"command": command, "output": output, "seconds": seconds})
    return record


def main() -> None:
    """Record the run and its figure."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "first"
        folder.mkdir()
        record = {"commit": str(Checkout.current()), "steps": run(steps(), folder)}
        RECORD.parent.mkdir(exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False)
        RECORD.write_text(text + "\n", encoding="utf-8")
        shutil.copyfile(folder / FIGURE, RECORD.parent / "figure.svg")
    for step in record["steps"]:
        print(f"{step['seconds']:7.1f} s  {step['command']}")


if __name__ == "__main__":
    main()
