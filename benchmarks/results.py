"""All figures about speed that this project publishes, measured and kept with their origin.

    python benchmarks/results.py [PART …]      measure these parts, or all
    python benchmarks/results.py --gpu FILE    take in the gpu.json of benchmarks/gpu.py
    python benchmarks/results.py --render      write RESULTS.md from what was measured
    python benchmarks/results.py --check       exit with 1 if RESULTS.md says something else

Each part is a benchmark in a process of its own. What it printed is kept in benchmarks/results with
its figures, its command, the commit, the machine and the load before it began. RESULTS.md shows
these files and nothing else. Measure on a machine where nothing else runs, from a clean checkout
that stays as it is: with changes before or after a part, its commit is kept as `-dirty`.
`make bench` measures all.

What a part measured that failed or took too long is in NAME.partial.json beside, until the part is
measured again. If this script was ended meanwhile, that file is just the JSON that the part wrote.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpu import Part, commit, commit_after, end_in_order, is_clean, machine, run_part, script

from fope_lab.config.problems import did_you_mean
from fope_lab.config.processor import processor

FOLDER = Path(__file__).resolve().parent
KEPT = FOLDER / "results"
PAGE = FOLDER / "RESULTS.md"
HOUR = 3600  # seconds
HEAD = """# Figures about speed

`python benchmarks/results.py` measures these parts and writes this page. The figures of each, as
JSON, are in `benchmarks/results`. What the columns mean, and what was aimed at, is in the first
lines of each script. `load` is the number of cores that were busy just before a part began: above
0.2, times are those of a machine that did something else, too. Ratios that are measured side by
side suffer less from that."""
GPU = KEPT / "gpu.json"
"""What benchmarks/gpu.py wrote on a machine with a GPU, in one run or in several."""
ORIGIN = ("commit", "gpu", "gpu_memory", "cuda", "python", "packages")
"""What is equal for all parts in GPU."""
LOOK = 3.0
"""For how many seconds the load is looked at."""


def _plain(name: str, *options: str) -> tuple[str, ...]:
    """The command of a benchmark that writes no JSON."""
    return (f"benchmarks/{name}.py", *options)


PARTS: Mapping[str, Part] = {
    "quickstart": Part("The quickstart, from an empty store", script("quickstart"), HOUR),
    "training": Part("Training beside Hugging Face's Trainer", script("training"), HOUR),
    "precision": Part("Two miniatures in float32 and in bfloat16", script("precision"), 2 * HOUR),
    "attention": Part("Attention by length, and packed documents", script("attention"), HOUR),
    "cpus": Part("One training on two CPUs, and two on one each", script("cpus"), HOUR),
    "embeddings": Part("Each embedding beside rope", script("embeddings"), HOUR),
    "scales": Part("Parameters, FLOPs and memory of each size", script("scales"), HOUR),
    "parity": Part("Logits beside Hugging Face's", script("parity"), HOUR),
    "passkey": Part("Passkeys by reading and by generating", script("passkey"), HOUR),
    "long context": Part("Memory of long contexts", script("long_context"), HOUR),
    "checkpoints": Part("Sharded checkpoints", script("checkpoints"), HOUR),
    "preparing data": Part("Preparation of data", _plain("prepare_data"), HOUR),
    "optimizers": Part("Muon beside AdamW", _plain("optimizers"), HOUR),
    "forms of a corpus": Part("The forms of a corpus", _plain("forms"), HOUR),
    "planning": Part("Reading and planning a sweep", _plain("planning"), HOUR),
    "controller": Part("What the controller costs", _plain("controller"), HOUR),
    "many slots": Part(
        "What the controller costs on 64 slots",
        _plain("controller", "--stages", "1280", "--slots", "64", "--seconds", "10"),
        HOUR,
    ),
    "tracking": Part("What tracking costs", _plain("tracking"), HOUR),
    "large sweep": Part("A finished sweep of 1,000 stages", _plain("large_sweep"), HOUR),
    "five thousand": Part(
        "A finished sweep of 5,000 stages",
        _plain("large_sweep", "--stages", "5000", "--only", "commands"),
        HOUR,
    ),
}


def busy_cores() -> float:
    """How many cores are busy now, as a mean over LOOK seconds.

    Not the load average, which still counts the part before.
    """
    before = _ticks()
    time.sleep(LOOK)
    idle, total = (after - start for after, start in zip(_ticks(), before, strict=True))
    return (os.cpu_count() or 1) * (1 - idle / total)


def _ticks() -> tuple[int, int]:
    """The idle and all ticks of all cores since the machine started (Linux)."""
    ticks = [int(one) for one in Path("/proc/stat").read_text(encoding="ascii").split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def measure(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Run a part; returns what is kept of it. `about` is the machine."""
    before = commit()
    load = busy_cores()
    began = datetime.now(UTC)
    figures = _partial(name)
    figures.unlink(missing_ok=True)
    measured = run_part(PARTS[name], toy=False, figures=figures)
    command = ["python", *(word for word in measured["command"] if word not in ("--json", "FILE"))]
    return {
        "command": " ".join(command),
        "commit": commit_after(before),
        "date": began.date().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "load": round(load, 2),
        "python": about["python"],
        "torch": about["packages"]["torch"],
        **{key: measured[key] for key in ("exit", "seconds", "output", "figures")},
    }


def _partial(name: str) -> Path:
    """Where a part writes its figures; a part that does not end well leaves them there."""
    return KEPT / f"{name}.partial.json"


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def take_in(content: Mapping[str, Any]) -> str:
    """Keep what benchmarks/gpu.py wrote; returns what became of the parts that were kept before.

    They stay if all of ORIGIN is equal, unless they were measured again. Of a commit that is
    unknown or has changes, nobody knows whether it is equal.
    """
    parts = {name: {**one, "date": content["date"]} for name, one in content["parts"].items()}
    new = {**{key: content[key] for key in ORIGIN}, "parts": parts}
    before = json.loads(GPU.read_text(encoding="utf-8")) if GPU.exists() else None
    if before is None:
        said = "nothing was kept before"
    elif differ := [key for key in ORIGIN if before[key] != new[key]]:
        said = f"replaces what was kept before, which has another {', '.join(differ)}"
    elif not is_clean(new["commit"]):
        said = f"replaces what was kept before: the commit is {new['commit'] or 'unknown'}"
    else:
        said = f"merged with what was kept before: {', '.join(before['parts'])}"
        new["parts"] = {**before["parts"], **parts}
    _write(GPU, new)
    return said


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
        lines += [
            "",
            f"## {PARTS[name].shows}",
            "",
            f"`{one['command']}` on {one['date']}, commit {_short(one['commit'])}, in"
            f" {one['seconds']:.0f} s.",
            f"{one['machine']}, load {one['load']}; Python {one['python']}, torch {one['torch']}.",
            *_block(one["output"]),
        ]
    if GPU.exists():
        lines += _on_a_gpu(json.loads(GPU.read_text(encoding="utf-8")))
    return "\n".join(lines) + "\n"


def _on_a_gpu(found: Mapping[str, Any]) -> Iterator[str]:
    """What `make gpu` measured, in as many parts as it ran."""
    yield from ("", "## On a GPU", "")
    yield f"`make gpu`, commit {_short(found['commit'])}. {found['gpu']}; Python {found['python']},"
    yield f"torch {found['packages']['torch']}, transformers {found['packages']['transformers']}."
    for one in found["parts"].values():
        ended = "past its limit" if one["exit"] is None else f"exit {one['exit']}"
        yield from ("", f"### {one['shows'][0].upper()}{one['shows'][1:]}", "")
        yield f"`python {' '.join(one['command'])}` on {one['date']}, {ended},"
        yield f"{one['seconds']:.0f} s."
        yield from _block(one["output"])


def _block(output: Iterable[str]) -> list[str]:
    return ["", "```text", *output, "```"]


def _short(commit: str | None) -> str:
    """The first digits of a commit, and whether there were changes."""
    full, _, changed = (commit or "unknown").partition("-")
    return "-".join(filter(None, (full[:7], changed)))


def arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--gpu", type=Path, metavar="FILE", help="take in a gpu.json")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--check", action="store_true", help="measure and write nothing")
    given = parser.parse_args()
    unknown = [name for name in given.parts if name not in PARTS]
    if unknown:
        near = did_you_mean(unknown[0], PARTS)
        parser.error(f"no part {unknown[0]!r}{near} (allowed: {', '.join(PARTS)})")
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
    if given.gpu is not None:
        content = json.loads(given.gpu.read_text(encoding="utf-8"))
        if content["gpu"] is None or content["toy"]:
            print(f"{given.gpu}: found a toy run, needs one on a GPU", file=sys.stderr)
            return 1
        print(f"{', '.join(content['parts'])}: {take_in(content)}")
    names = () if given.render or given.gpu else given.parts or tuple(PARTS)
    about = machine() if names else {}
    for name in names:
        print(f"{name} …", end=" ", flush=True)
        measured = measure(name, about)
        ended = f"exit {measured['exit']} in {measured['seconds']:.0f} s"
        print(f"{ended}, commit {_short(measured['commit'])}", flush=True)
        if measured["exit"] != 0:  # what was measured before stays
            failed.append(name)
            _write(_partial(name), measured)
            print("\n".join(measured["output"]), file=sys.stderr)
            print(f"{name}: what it measured is in {_partial(name)}", file=sys.stderr)
            continue
        _write(KEPT / f"{name}.json", measured)
        _partial(name).unlink(missing_ok=True)
        PAGE.write_text(page(kept()), encoding="utf-8")
    PAGE.write_text(page(kept()), encoding="utf-8")
    return int(bool(failed))


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
