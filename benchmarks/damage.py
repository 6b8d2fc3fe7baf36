"""Every file of a finished and of an interrupted sweep, damaged in every way, then run again.

    python benchmarks/damage.py [--folder DIR]

A small sweep runs once to its end, and once until its training is interrupted. Then, for each file
of its stages and each kind of damage, a copy of the store is damaged and the sweep is run again, by
the controller's searcher and in this process. What no stage has read since is found as `store
verify --repair` finds it, and the sweep is run once more. In the end every stage must be done, and
rows, results and checkpoints must be those of the undamaged run, bit by bit, but for times. Prints
a table and exits with 1 if any case differs or raises.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from disturbed import content
from ray.tune.search import Searcher

from fope_lab.orchestration.searcher import StageSearcher
from fope_lab.orchestration.trial import REASON, STATUS, Order, run_until_ended
from fope_lab.planning.schedule import Capacity, Demand, Lookahead
from fope_lab.store.folder import StageFolder
from fope_lab.store.lease import LeaseObserver
from fope_lab.store.root import Store
from fope_lab.store.writer import FolderWriter
from fope_lab.sweep import load_sweep
from fope_lab.sweep.graph import Stage

SWEEP = """
name: damaged
seeds: [0]
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 8, intermediate_size: 16}
    embedding: rope
    data: {corpus: {files: text.txt}, length: 16}
    train: {tokens: 1024, batch_tokens: 64, learning_rate: 1e-3, checkpoint_every: 4, log_every: 1}
  extend:
    kind: extend
    from: pretrain
    data: {corpus: {files: text.txt}, length: 32}
    train: {tokens: 256, batch_tokens: 64, learning_rate: 1e-3, checkpoint_every: 2, log_every: 1}
  perplexity: {kind: perplexity, from: extend, corpus: {files: text.txt}, lengths: [16, 32],
               tokens: 256}
"""
KINDS = ("removed", "emptied", "cut in half", "zeroed", "one bit", "{}", "[]", "other JSON")


def damaged(content: bytes, kind: str) -> bytes | None:
    """The bytes of a damaged file, or None if it is removed."""
    half = len(content) // 2
    return {
        "removed": None,
        "emptied": b"",
        "cut in half": content[:half],
        "zeroed": bytes(len(content)),
        "one bit": content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :],
        "{}": b"{}",
        "[]": b"[]",
        "other JSON": b'{"step": 1, "values": {"loss": 0.5}, "metrics": {}, "token": 7}',
    }[kind]


def run(stages: list[Stage], store: Store) -> None:
    """Run what the store lacks, as a driver does, one stage after the other."""
    seconds = dict.fromkeys((stage.key for stage in stages), 1.0)
    demands = {key: Demand({"CPU": 1}, 1.0, 1) for key in seconds}
    capacity = Capacity(demands, lambda: {"CPU": 1}, Lookahead(), time.monotonic)
    orders: dict[str, Order | None] = {}
    owner, give = f"driver-{time.monotonic_ns()}", orders.__setitem__
    searcher = StageSearcher(stages, store, owner, capacity, seconds, give)
    searcher._observer = LeaseObserver(seconds=1.0)  # nobody else is alive
    for slot in map(str, range(100)):
        config = searcher.suggest(slot)
        if config == Searcher.FINISHED:
            break
        if config is None:  # it watches the lease of an attempt whose record is damaged
            time.sleep(0.5)
            continue
        searcher.on_trial_result(slot, {})  # it has started
        while (order := orders[slot]) is not None:
            state = run_until_ended(order, store)
            searcher.on_trial_result(slot, {STATUS: str(state.status), REASON: state.reason})
        searcher.on_trial_complete(slot)


def interrupt_training(stages: list[Stage], store: Store) -> None:
    """Run until the first training has saved two checkpoints."""
    whole, saved = FolderWriter.save_checkpoint, []

    def save(self: FolderWriter, step: int, write: Any) -> Any:
        checkpoint = whole(self, step, write)
        saved.append(step)
        if step == 8:
            raise KeyboardInterrupt
        return checkpoint

    FolderWriter.save_checkpoint = save  # type: ignore[method-assign, assignment]
    try:
        run(stages, store)
    except KeyboardInterrupt:
        pass
    finally:
        FolderWriter.save_checkpoint = whole  # type: ignore[method-assign]


def files_of(stages: list[Stage], store: Store) -> list[Path]:
    folders = [store.folder(stage.kind, stage.key).path for stage in stages]
    return [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    base = options.folder or Path(tempfile.mkdtemp(prefix="damage-"))
    base.mkdir(parents=True, exist_ok=True)
    (base / "text.txt").write_text("".join(f"Line {i}: {i * i} and so on.\n\n" for i in range(900)))
    (base / "damaged.yaml").write_text(SWEEP)
    stages = list(load_sweep(base / "damaged.yaml").stages)
    quiet = Store.create(base / "finished")
    run(stages, quiet)
    expected = all_content(stages, quiet)
    assert all(one["done"] for one in expected)
    interrupted = Store.create(base / "interrupted")
    interrupt_training(stages, interrupted)
    bad = 0
    for sample in (quiet, interrupted):
        counts: Counter[str] = Counter()
        for path in files_of(stages, sample):
            for kind in KINDS:
                outcome = one_case(stages, sample, path.relative_to(sample.root), kind, expected)
                counts[outcome] += 1
                if outcome not in OUTCOMES:
                    bad += 1
                    print(f"{sample.root.name}: {path.relative_to(sample.root)}, {kind}: {outcome}")
        total = sum(counts.values())
        print(f"{sample.root.name}: {total} cases; {dict(counts.most_common())}", flush=True)
    return 1 if bad else 0


OUTCOMES = ("nothing to redo", "redone by the run", "found by store verify, then redone")


def one_case(stages: list[Stage], sample: Store, path: Path, kind: str, expected: list[Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        shutil.copytree(sample.root, store.root)
        file = store.root / path
        content = damaged(file.read_bytes() or b" ", kind)
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
        before = attempts(stages, store)
        try:
            run(stages, store)
            outcome = OUTCOMES[0] if attempts(stages, store) == before else OUTCOMES[1]
            if [f for f in folders(stages, store) if f.is_done() and f.damage()]:
                for folder_ in folders(stages, store):
                    if folder_.is_done() and folder_.damage():
                        folder_.set_aside("verify")
                run(stages, store)
                outcome = OUTCOMES[2]
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return outcome if all_content(stages, store) == expected else "other numbers"


def folders(stages: list[Stage], store: Store) -> list[StageFolder]:
    return [store.folder(stage.kind, stage.key) for stage in stages]


def attempts(stages: list[Stage], store: Store) -> list[int]:
    return [folder.attempts.newest_token() for folder in folders(stages, store)]


def all_content(stages: list[Stage], store: Store) -> list[Any]:
    return [content(folder) for folder in folders(stages, store)]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
