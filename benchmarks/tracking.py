"""What tracking costs: how long a row holds a training up, and how long a large sweep takes.

    python benchmarks/tracking.py [--stages 1000]

The first part logs rows through the store's writer, as a training does, while the tracking thread
of a run uploads them: to a server that is up, to one that takes connections and never answers, and
to one that is down. Beside them are the same rows without any tracking. The second part writes a
sweep of many finished stages through the store's own calls, and sends it to the store's database:
for the first time, again by a new process that finds nothing new, and after the store lost its
records.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.store.root import Store
from fope_lab.sweep import Plan, load_sweep, plan
from fope_lab.tracking.tracker import Tracker, TrackingThread, sync

ROWS, REPEATS, CHECKPOINT_EVERY = 2_000, 3, 500
SWEEP = """
name: {name}
seeds: [{seeds}]
stages:
  pretrain:
    kind: pretrain
    model: {{num_layers: 1, hidden_size: 32, num_heads: 2, head_dim: 16}}
    embedding: rope
    data: {{corpus: python-docs, length: 64}}
    train: {{tokens: 4096, batch_tokens: 1024, learning_rate: 1e-3}}
  perplexity: {{kind: perplexity, from: pretrain, corpus: python-docs, lengths: [64, 128, 512]}}
grid:
  pretrain.embedding: [rope, nope, alibi, fope, fire]
"""


def sweep_of(root: Path, name: str, seeds: int) -> tuple[Store, Plan]:
    """A sweep of two stages for each of five embeddings and each seed, with an empty store."""
    path = root / f"{name}.yaml"
    path.write_text(SWEEP.format(name=name, seeds=", ".join(map(str, range(seeds)))))
    store = Store(root / f"{name}-store")
    return store, plan(load_sweep(path), store)


def log_rows(store: Store, planned: Plan) -> list[float]:
    """Log the rows of a training; returns the microseconds of each."""
    stage = next(s for s in planned.sweep.stages if s.kind == "pretrain")
    took = []
    with store.folder(stage.kind, stage.key).begin("benchmark", {}) as attempt:
        for step in range(1, ROWS + 1):
            values = {"loss": 1 / step, "learning_rate": 0.1, "gradient_norm": 1.0, "rate": 5.0}
            start = time.perf_counter()
            attempt.writer.log(step, values)
            took.append((time.perf_counter() - start) * 1e6)
            time.sleep(0.0005)  # a step, in which the tracking thread may work
            if step % CHECKPOINT_EVERY == 0:
                attempt.writer.save_checkpoint(step, lambda path: None)
    return took


@contextmanager
def mlflow_server(root: Path) -> Iterator[str]:
    """A server of its own process, as `fope-lab ui` starts it."""
    port = free_port()
    program = "import sys; from pathlib import Path; from fope_lab.tracking.ui import serve; "
    program += "sys.exit(serve(Path(sys.argv[1]), port=int(sys.argv[2])))"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(root), str(port)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rows_cost(root: Path) -> None:
    """Print what a row costs with each kind of server, in turns, so that all see the same load."""
    took: dict[str, list[float]] = {}
    server_root = root / "server"
    server_root.mkdir()
    with mlflow_server(server_root) as up, socket.create_server(("127.0.0.1", 0)) as silent:
        slow = f"http://127.0.0.1:{silent.getsockname()[1]}"
        uris = {"none": None, "up": up, "silent": slow, "down": f"http://127.0.0.1:{free_port()}"}
        for repeat in range(REPEATS):
            for name, uri in uris.items():
                store, planned = sweep_of(root, f"{name}-{repeat}", seeds=1)
                thread = None
                if uri is not None:
                    thread = TrackingThread(Tracker(store.root, uri), [planned], seconds=0.5)
                    thread.start()
                took.setdefault(name, []).extend(log_rows(store, planned))
                if thread is not None:
                    thread.flush(10.0)
    base = statistics.median(took["none"])
    print("a row of 4 metrics holds a training up, in µs, with MLflow:")
    for name, times in took.items():
        median, worst = statistics.median(times), statistics.quantiles(times, n=1000)[-1]
        print(
            f"  {name:7} median {median:7.1f} ({median / base:.2f} of none)"
            f"  99.9 % under {worst:8.1f}  greatest {max(times):9.1f}"
            f"  {1e6 / statistics.fmean(times):,.0f} rows/s"
        )


def sweep_cost(root: Path, stages: int) -> None:
    """Print the seconds that a sweep of finished stages takes to be sent."""
    store, planned = sweep_of(root, "large", seeds=stages // 10)
    for stage in planned.sweep.stages:
        with store.folder(stage.kind, stage.key).begin("benchmark", {}) as attempt:
            measured = []
            if stage.kind == "perplexity":
                measured = [
                    Measurement(name="perplexity_by_length", x=x, value=9.0 + x / 100, stderr=0.5)
                    for x in (64, 128, 512)
                ]
            elif stage.kind == "pretrain":
                for step in range(1, 101):
                    attempt.writer.log(step, {"loss": 1 / step, "learning_rate": 0.1})
                measured = [Measurement(name="loss", value=0.01)]
            for one in measured:
                attempt.writer.log(one.x or 100, one.row)
            attempt.finish(ResultRecord(metrics=tuple(measured)).as_json())
    planned = plan(planned.sweep, store)
    Tracker(store.root).record(planned)
    print(f"a sweep of {len(planned.sweep.stages)} finished stages, seconds to bring up to date:")
    print(f"  first time                {seconds_to_sync(store):6.1f}")
    size = sum(f.stat().st_size for f in store.root.glob("mlflow.db*")) / 1e6
    print(f"  nothing new               {seconds_to_sync(store):6.1f}   database {size:.1f} MB")
    for path in store.root.glob("*/*/tracking/*.json"):
        path.unlink()
    print(f"  records lost              {seconds_to_sync(store):6.1f}")


def seconds_to_sync(store: Store) -> float:
    start = time.perf_counter()
    sync(Tracker(store.root))
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, default=1000, help="stages of the large sweep")
    options = parser.parse_args()
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with tempfile.TemporaryDirectory() as folder:
        rows_cost(Path(folder))
        sweep_cost(Path(folder), options.stages)


if __name__ == "__main__":
    main()
