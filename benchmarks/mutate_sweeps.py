"""Random mutations of all shipped sweep files: each is planned or refused, never a traceback.

    python benchmarks/mutate_sweeps.py [--count 5000] [--seed 0]

Prints how many were planned and refused, the slowest with its seconds, the peak memory of the
process, and every traceback with the seed and the file that led to it; then the exit code is 1.
Half of the mutations change the YAML's values, half its text. The hub is not asked.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from fope_lab.planning.estimate import estimate_plans
from fope_lab.sweep import SweepError, load_sweep, plan

os.environ["HF_HUB_OFFLINE"] = "1"  # mutated names are not asked for on the hub
SWEEPS = Path(__file__).parents[1] / "sweeps"
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 3, 2**31, 2**63 - 1, 1e-9, 0.5, float("inf"), "", "x", "rope", "byte"),
    *("pretrain", "hf:a/b", "a.yaml#b", "/", "~", [], {}, [1, 2], {"type": "rope"}, "é\u2028"),
)
CHARACTERS = "abz019:-{}[]#&*!|>'\"%@`,? \n\t\\.e~<=\x00é\u2028"


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in a value but the empty one."""
    items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    return [p for key, item in items for p in ((*path, key), *places(item, (*path, key)))]


def with_other_values(content: Any, choose: random.Random) -> str:
    """The file with one to four values exchanged, removed, copied elsewhere or repeated."""
    content = copy.deepcopy(content)
    for _ in range(choose.randint(1, 4)):
        known = places(content)
        if not known:
            break
        *way, last = choose.choice(known)
        target = content
        for part in way:
            target = target[part]
        action = choose.choice(("exchange", "remove", "copy", "repeat"))
        if action == "remove":
            del target[last]
        elif action == "repeat" and isinstance(target, list):
            count = choose.randint(2, 50)
            target[:] = [copy.deepcopy(item) for _ in range(count) for item in target]
        elif action == "copy":
            source = content
            for part in choose.choice(known):
                source = source[part]
            target[last] = copy.deepcopy(source)
        else:
            target[last] = copy.deepcopy(choose.choice(VALUES))
    return yaml.safe_dump(content, allow_unicode=True)


def with_other_text(text: str, choose: random.Random) -> str:
    """The file with pieces of its text removed, doubled or exchanged for a character."""
    for _ in range(choose.randint(1, 6)):
        start = choose.randrange(len(text) + 1)
        end = min(len(text), start + choose.randint(0, 12))
        piece = choose.choice(("", text[start:end] * 2, choose.choice(CHARACTERS)))
        text = text[:start] + piece + text[end:]
    return text


def outcome(path: Path) -> str:
    """What becomes of a file: "planned", "refused", or a traceback."""
    try:
        estimate_plans([plan(load_sweep(path))]).as_json()
    except SweepError:
        return "refused"
    except Exception:
        return traceback.format_exc()
    return "planned"


def main() -> None:
    """Mutate, read and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    files = sorted(SWEEPS.rglob("*.yaml"))
    counts: Counter[str] = Counter()
    slowest, failures = (0.0, ""), 0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SWEEPS, folder, dirs_exist_ok=True)  # files refer to each other
        for number in range(options.count):
            choose = random.Random(f"{options.seed} {number}")
            file = choose.choice(files)
            text = file.read_text(encoding="utf-8")
            by_text = choose.random() < 0.5
            changed = (
                with_other_text(text, choose)
                if by_text
                else with_other_values(yaml.safe_load(text), choose)
            )
            path = Path(folder) / file.relative_to(SWEEPS)
            path.write_bytes(changed.encode("utf-8", "surrogatepass"))
            start = time.perf_counter()
            found = outcome(path)
            path.write_text(text, encoding="utf-8")
            slowest = max(slowest, (time.perf_counter() - start, f"{number}: {file.name}"))
            counts[found if found in ("planned", "refused") else "traceback"] += 1
            if found not in ("planned", "refused"):
                failures += 1
                print(f"mutation {number} of {file}:\n{found}\n{changed}\n", flush=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{options.count} mutations of {len(files)} files: {dict(counts)}")
    print(f"slowest {slowest[0]:.2f} s (mutation {slowest[1]}), peak memory {memory:.0f} MB")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
