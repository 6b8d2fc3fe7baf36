"""Predicted and actual times of stages whose sizes were not used for calibration.

    python benchmarks/cost.py [--store FOLDER]

The benchmark runs a sweep of small models, whose times calibrate the plan of a second sweep with
different models, lengths, batches and numbers of tokens. The second sweep is planned, then run, and
each stage is compared with its prediction: by wall time, which other programs on the machine
lengthen, and by processor time. Aim: a median error of at most 25 %. It takes about six minutes on
two idle cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from fope_lab.planning.estimate import PlanEstimate, estimate_plans
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep, plan

CALIBRATION: dict[str, list[Any]] = {
    "pretrain.model.num_layers": [1, 2, 4, 2, 6, 3],
    "pretrain.model.head_dim": [32, 32, 16, 64, 32, 48],
    "pretrain.embedding": ["rope", "fope", "alibi", "rope", "fope", "alibi"],
    "pretrain.data.length": [64, 128, 64, 256, 32, 192],
    "pretrain.train.batch_tokens": [1024, 2048, 2048, 4096, 512, 3072],
    "pretrain.train.tokens": [200_000, 200_000, 100_000, 150_000, 60_000, 100_000],
}
"""The axes of six pretrainings, which vary together."""
PREDICTION: dict[str, list[Any]] = {
    "pretrain.model.num_layers": [3, 5, 2, 4],
    "pretrain.model.head_dim": [24, 32, 96, 40],
    "pretrain.embedding": ["rope", "fope", "alibi", "rope"],
    "pretrain.data.length": [48, 96, 320, 160],
    "pretrain.train.batch_tokens": [768, 1536, 2560, 1920],
    "pretrain.train.tokens": [250_000, 150_000, 180_000, 220_000],
}
READINGS = {
    "calibration": {"perplexity": (25_000, [32, 128, 512]), "passkey": (40, [32, 128, 512])},
    "prediction": {"perplexity": (40_000, [64, 256, 768]), "passkey": (60, [64, 192, 768])},
}
"""The number of tokens and trials of the evaluations, and their lengths."""


def sweep_of(name: str, axes: dict[str, list[Any]], extended: tuple[int, int]) -> dict[str, Any]:
    """Return a sweep: pretrain, extend to (length, tokens), and two evaluations of each model."""
    tokens, lengths = READINGS[name]["perplexity"]
    trials, prompts = READINGS[name]["passkey"]
    length, more = extended
    settings = {"learning_rate": 1e-3, "batch_tokens": 4 * length, "tokens": more}
    return {
        "name": f"cost-{name}",
        "stages": {
            "pretrain": {
                "kind": "pretrain",
                "model": {"num_layers": 1, "num_heads": 4, "head_dim": 32},
                "embedding": "rope",
                "data": {"corpus": "python-docs", "length": 64},
                "train": {"tokens": 1024, "batch_tokens": 1024, "learning_rate": 1e-3},
            },
            "extend": {
                "kind": "extend",
                "from": "pretrain",
                "data": {"corpus": "python-docs", "length": length},
                "train": settings,
            },
            "perplexity": {
                "kind": "perplexity",
                "from": "pretrain",
                "corpus": "python-docs",
                "lengths": lengths,
                "tokens": tokens,
            },
            "passkey": {
                "kind": "passkey",
                "from": "extend",
                "form": "symbolic",
                "lengths": prompts,
                "trials": trials,
            },
        },
        "zip": axes,
    }


def planned(path: Path, store: Store) -> PlanEstimate:
    """Return the plan of a sweep file, calibrated by the store."""
    return estimate_plans([plan(load_sweep(path), store)], store)


def run(path: Path, store: Store) -> None:
    """Run `fope-lab run` in a process of its own; its progress goes to stderr."""
    command = [sys.executable, "-m", "fope_lab.cli", "run", str(path), "--store", str(store.root)]
    subprocess.run(command, check=True, stdout=sys.stderr)


def taken(store: Store, kind: str, key: str) -> tuple[float, float]:
    """Return the wall time and the processor time of a finished stage in seconds."""
    done = json.loads((store.folder(kind, key).path / "DONE").read_text(encoding="utf-8"))
    return float(done["seconds"]), float(done["ran"]["cpu_seconds"])


def compare(before: PlanEstimate, store: Store) -> None:
    """Print the errors of each stage that had an estimate, and the median errors."""
    errors: tuple[list[float], list[float]] = ([], [])
    print(
        f"{'stage':22}{'FLOPs':>9}{'predicted':>11}{'clock':>9}{'error':>8}{'CPU':>9}{'error':>8}"
    )
    for stage in before.todo():
        predicted = before.forecasts[stage.key].seconds
        if predicted is None:
            continue
        found = taken(store, stage.kind, stage.key)
        shown = ""
        for seconds, column in zip(found, errors, strict=True):
            column.append(predicted / seconds - 1)
            shown += f"{seconds:7.1f} s{column[-1]:+8.0%}"
        label = stage.label
        print(f"{label:22}{stage.cost.flops or 0:9.1e}{predicted:9.1f} s{shown}")
    medians = [statistics.median(map(abs, column)) for column in errors]
    print(f"{len(errors[0])} stages: median error {medians[0]:.0%} by the clock, ", end="")
    print(f"{medians[1]:.0%} of the processor's time")
    for source in dict.fromkeys(before.forecasts[s.key].source for s in before.todo()):
        print(f"  {source}")


def main() -> None:
    """Calibrate a plan, predict the second sweep's times, run it and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", help="an empty folder to keep (default: one that is removed)")
    folder = parser.parse_args().store
    with tempfile.TemporaryDirectory() as temporary:
        store = Store.create(Path(folder or temporary) / "store")
        paths = {name: store.root / f"{name}.yaml" for name in READINGS}
        files = {
            "calibration": sweep_of("calibration", CALIBRATION, (256, 60_000)),
            "prediction": sweep_of("prediction", PREDICTION, (384, 90_000)),
        }
        for name, content in files.items():
            paths[name].write_text(yaml.safe_dump(content), encoding="utf-8")
        run(paths["calibration"], store)
        before = planned(paths["prediction"], store)
        run(paths["prediction"], store)
        compare(before, store)


if __name__ == "__main__":
    main()
