"""What a finished sweep of 1,000 stages costs: its commands, its report, its pages in MLflow.

    python benchmarks/large_sweep.py [--stages 1000] [--folder DIR] [--only commands | pages]

Writes the results of a sweep through the store's own calls, with made-up numbers and no training.
Then each command runs in a process of its own: its wall time, and beside it the processor time of
the process, which other programs lengthen less. At last `fope-lab ui` serves the sweep, and
Chromium opens the list of runs, prepared views, and the page of the report, each until it shows
something: of runs, MLflow shows the first 100, and more on demand. This needs Chromium and
playwright. A DIR is kept, and used again as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.store.attempt import Attempt
from fope_lab.store.root import Store
from fope_lab.sweep import Sweep, load_sweep, plan
from fope_lab.sweep.graph import Stage
from fope_lab.tracking.tracker import Tracker

REPEATS = 5
STAGES_OF_A_SEED = 5 * 5 * 5
"""Five embeddings, each at five rates, with a training and four evaluations."""
SWEEP = """
name: large
description: Five embeddings, each at five learning rates.
seeds: [{seeds}]
stages:
  pretrain:
    kind: pretrain
    model: {{num_layers: 1, hidden_size: 32, num_heads: 2, head_dim: 16}}
    embedding: rope
    data: {{corpus: python-docs, length: 64}}
    train: {{tokens: 102400, batch_tokens: 1024, learning_rate: 1e-3}}
  perplexity:
    {{kind: perplexity, from: pretrain, corpus: python-docs, lengths: [64, 128, 256, 512]}}
  source:
    {{kind: perplexity, from: pretrain, corpus: python-source, lengths: [64, 128, 256, 512]}}
  passkey: {{kind: passkey, from: pretrain, form: symbolic, lengths: [32, 64, 128, 256]}}
  needle: {{kind: passkey, from: pretrain, form: symbolic, lengths: [32, 64, 128], trials: 50}}
grid:
  pretrain.embedding: [rope, nope, alibi, fope, fire]
  pretrain.train.learning_rate: [1e-3, 2e-3, 3e-3, 4e-3, 5e-3]
report:
  claims:
    - "perplexity.perplexity@512: fope < rope"
    - "passkey.passkey@256: fope > rope"
"""
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
"""With Python's cache of compiled modules, which users have."""
RUNS_SHOWN = "() => document.querySelectorAll('[role=row] a[href*=\"/runs/\"]').length >= 20"
VIEW_DRAWN = "() => document.querySelector('.js-plotly-plot')?.data?.length >= 10"


def write_sweep(folder: Path, stages: int) -> tuple[Path, Store]:
    """A sweep of about so many stages whose results a store in `folder` has all."""
    path, root = folder / "large.yaml", folder / "store"
    if root.exists():
        return path, Store.existing(root)
    seeds = range(max(1, round(stages / STAGES_OF_A_SEED)))
    path.write_text(SWEEP.format(seeds=", ".join(map(str, seeds))), encoding="utf-8")
    sweep, store = load_sweep(path), Store.create(root)
    for stage in sweep.stages:
        request = {"key": stage.key, "config": stage.config}
        with store.folder(stage.kind, stage.key).begin("benchmark", request) as attempt:
            attempt.finish(made_up(stage, attempt).as_json())
    Tracker(store.root).record(plan(sweep, store))
    return path, store


def made_up(stage: Stage, attempt: Attempt) -> ResultRecord:
    """The result of a stage, whose rows are logged as its kind does."""
    spread = 0.02 * math.sin(17 * (stage.seed or 0) + 5 * len(stage.label))
    quality = 2 + 0.1 * len(stage.embedding or "") + spread
    if stage.kind == "pretrain":
        for step in range(1, 101):
            loss = quality + 3 * math.exp(-step / 20)
            attempt.writer.log(step, {"loss": loss, "learning_rate": 1e-3, "gradient_norm": 1.0})
        return ResultRecord(metrics=(Measurement(name="loss", value=quality),))
    measured: list[Measurement] = []
    for length in getattr(stage.spec, "lengths", ()):
        if stage.kind == "perplexity":
            loss = quality + max(0, math.log2(length / 64)) / 3
            values = {"perplexity_by_length": math.exp(loss), "loss_by_length": loss}
        else:
            beyond = max(0, math.log2(length / 64))
            values = {"passkey_accuracy_by_length": 0.97 - 0.3 * beyond + spread}
        found = [Measurement(name=name, x=length, value=v, n=500) for name, v in values.items()]
        attempt.writer.log(length, {m.name: m.value for m in found})
        measured += found
    return ResultRecord(metrics=tuple(measured))


def command(*arguments: str) -> tuple[float, float]:
    """The seconds of a fope-lab command in a process of its own: wall, and user time."""
    line = [sys.executable, "-m", "fope_lab.cli", *arguments]
    start = time.perf_counter()
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(line)} ended with code {process.returncode}")
    return wall, usage.ru_utime


def show(name: str, times: list[tuple[float, float]], note: str = "") -> None:
    """Print the median of some runs and the least and greatest wall time."""
    wall, user = (statistics.median(one) for one in zip(*times, strict=True))
    least, greatest = min(wall for wall, _ in times), max(wall for wall, _ in times)
    extent = f"({least:.2f} to {greatest:.2f} in {len(times)} runs)" if len(times) > 1 else ""
    print(f"  {name:32} {wall:7.2f} {user:7.2f}  {extent}{note}", flush=True)


def commands(path: Path, store: Store) -> None:
    """Print the time of each command on the finished sweep."""
    place = ("--store", str(store.root))
    page = store.report("large") / "report.html"
    unchanged: dict[str, list[tuple[float, float]]] = {}
    print(f"  {'seconds':32} {'wall':>7} {'user':>7}")
    print(f"  {'':32} ------- -------")
    page.unlink(missing_ok=True)
    show("report, first", [command("report", str(path), *place)])
    database = store.root / "mlflow.db"
    for file in store.root.glob(f"{database.name}*"):
        file.unlink()
    show("sync, into a new database", [command("sync", *place)])
    show("sync, asking MLflow, nothing new", [command("sync", *place)])
    show("run, sending the report", [command("run", str(path), *place)])
    show("run, asking MLflow, nothing new", [command("run", str(path), *place)])
    lines = {
        "--help": ("--help",),
        "plan": ("plan", str(path), *place),
        "status": ("status", str(path), *place),
        "report, unchanged": ("report", str(path), *place),
        "run, nothing to do": ("run", str(path), *place),
        "sync, nothing new": ("sync", *place),
    }
    for _ in range(REPEATS):  # in turns, so that all see the same load
        for name, line in lines.items():
            unchanged.setdefault(name, []).append(command(*line))
    for name, times in unchanged.items():
        show(name, times)
    content = page.read_text(encoding="utf-8")
    figures = content.count("<figure")
    print(f"  page of the report {len(content) / 1e6:.2f} MB with {figures} figures")
    print(f"  database of MLflow {database.stat().st_size / 1e6:.1f} MB")


@contextlib.contextmanager
def served(store: Store) -> Iterator[str]:
    """The address of `fope-lab ui` for a store."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    line = [sys.executable, "-m", "fope_lab.cli", "ui", "--store", str(store.root), "--port", port]
    start = time.perf_counter()
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        print(f"  {'fope-lab ui, until it serves':42} {time.perf_counter() - start:6.1f}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def pages(sweep: Sweep, store: Store) -> None:
    """Print the seconds until a browser shows MLflow's pages of the sweep, and its report."""
    from playwright.sync_api import sync_playwright

    report = store.report(sweep.name) / "report.html"
    tracker = Tracker(store.root)
    print("  seconds until the browser shows it")
    with served(store) as address, sync_playwright() as driver:
        links = tracker.view_links(sweep.name, address)
        experiment = next(run.experiment_id for run in tracker.runs(sweep).values())
        targets: dict[str, tuple[str, Callable[[Any], object]]] = {
            "list of runs": (
                f"{address}/#/experiments/{experiment}/runs",
                lambda page: page.wait_for_function(RUNS_SHOWN),
            ),
            "view perplexity, drawn": (
                links["perplexity"],
                lambda page: page.wait_for_function(VIEW_DRAWN),
            ),
            "view results, a table": (
                links["results"],
                lambda page: page.wait_for_function(RUNS_SHOWN),
            ),
            "page of the report": (report.as_uri(), lambda page: page.evaluate(NEXT_FRAME)),
        }
        for turn in ("a new browser", "another"):
            browser = driver.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": 1600, "height": 1000})
            page.set_default_timeout(120_000)
            for name, (target, ready) in targets.items():
                page.goto("about:blank")
                start = time.perf_counter()
                page.goto(target)
                ready(page)
                seconds = time.perf_counter() - start
                print(f"  {name + ', ' + turn:42} {seconds:6.1f}", flush=True)
            browser.close()


NEXT_FRAME = """() => new Promise((done) =>
    requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"""


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--stages", type=int, default=1000, help="stages of the sweep")
    parser.add_argument("--folder", type=Path, help="keep the sweep and its store here")
    parser.add_argument("--only", choices=("commands", "pages"), help="measure only these")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        path, store = write_sweep(folder, options.stages)
        sweep = load_sweep(path)
        print(f"{len(sweep.stages):,} finished stages on {os.cpu_count()} cores")
        if options.only != "pages":
            commands(path, store)
        if options.only != "commands":
            pages(sweep, store)


if __name__ == "__main__":
    main()
