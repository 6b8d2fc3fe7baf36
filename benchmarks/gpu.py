"""All that needs a GPU to be shown, in one command and in at most eight minutes on an H100.

    python benchmarks/gpu.py [--toy] [--parts parity resume …] [--out build/gpu]

Each part is a process of its own with a limit of time, so that a part that fails or hangs costs
only itself. Those that come last get what is left of the eight minutes. After each one,
OUT/gpu.json and the table OUT/gpu.txt are written anew, so that an end at any moment leaves what
was measured. `make gpu` runs it, and `python benchmarks/results.py --gpu OUT/gpu.json` takes the
figures into RESULTS.md.

Only the first GPU is used, or those of CUDA_VISIBLE_DEVICES. PYTHONPATH may lead to packages.
The machine needs Python 3.11 or 3.12, torch 2.11 or newer, this checkout and the packages in
PACKAGES with those that they require; pytest and hypothesis are for the tests. Triton needs a C
compiler and Python's headers, without which all that compiles a kernel fails. Nothing else is
needed, neither Ray nor MLflow nor datasets (tests/packaging/test_gpu_script.py), and no network.

`--toy` runs the same parts on a CPU at sizes that say nothing about speed: to see that they run.
The exit code is 1 if a part fails, or 2 if there is no GPU and no `--toy`, or `--commit` is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "torch",
    "numpy",
    "transformers",
    "accelerate",
    "safetensors",
    "pyyaml",
    "pydantic",
    "annotated-types",
    "pytest",
    "hypothesis",
)
"""What must be installed, and whose versions are kept with the figures."""
TOTAL = 8 * 60
"""The seconds that all parts may take together."""
LEAST = 10
"""The seconds that must be left for another part to begin."""
KEPT_LINES = 60
"""The last lines of a part's output that gpu.json keeps."""
JSON = "{json}"
"""Stands in a part's command for the file that it writes its figures to."""


@dataclass(frozen=True)
class Part:
    """What one process shows. `seconds` is the most that it may take; `toy` are the arguments that
    take the place of `full` on a CPU."""

    shows: str
    command: tuple[str, ...]
    seconds: int
    full: str = ""
    toy: str = ""

    def line(self, toy: bool, figures: Path) -> list[str]:
        """The command line of the process."""
        words = (*self.command, *shlex.split(self.toy if toy else self.full))
        return [sys.executable, *(str(figures) if word == JSON else word for word in words)]


def script(name: str) -> tuple[str, ...]:
    """The command of a benchmark that writes its figures as JSON, run in ROOT."""
    return (f"benchmarks/{name}.py", "--json", JSON)


def _tests(name: str, those: str) -> tuple[str, ...]:
    # By name: the tests that need no GPU run elsewhere.
    return ("-m", "pytest", "-v", "-rfE", f"tests/model/{name}.py", "-k", those)


PARTS: Mapping[str, Part] = {
    "parity": Part(
        "logits of transformers' models, in float32 and bfloat16",
        script("parity"),
        35,
        toy="--models gqa yarn",
    ),
    "resume": Part(
        "a training that is stopped and resumed, to the bit", script("resume"), 20, toy="--steps 6"
    ),
    "training at 60m": Part(
        "speed beside Hugging Face's Trainer, eager and compiled; FoPE beside rope",
        script("training"),
        95,
        "--shapes 60m --steps 4 --rounds 5 --contestants ours fope 'hugging face'",
        "--shapes quickstart --steps 1 --rounds 2 --no-compile"
        " --contestants ours fope 'hugging face'",
    ),
    "training at 1.2b": Part(
        "speed beside Hugging Face's Trainer, both in the GPU's memory",
        script("training"),
        60,
        "--shapes 1.2b --steps 4 --rounds 4 --no-compile",
        "--shapes mini --steps 1 --rounds 2 --no-compile",
    ),
    "utilisation at 1.2b": Part(
        "utilisation and memory of ours alone, with four times the batch, eager and compiled",
        script("training"),
        90,
        "--shapes 1.2b --rows 32 --steps 2 --rounds 4 --contestants ours",
        "--shapes tiny --rows 4 --steps 1 --rounds 2 --compile --contestants ours",
    ),
    "passkey": Part(
        "passkeys by reading beside generate",
        script("passkey"),
        35,
        "--lengths 512 1024 --trials 100 --rounds 2 --device cuda",
        "--lengths 256 --trials 4 --rounds 2 --scale tiny",
    ),
    "tests": Part(
        "the tests of attention that need a GPU", _tests("test_attention", "gpus_paths"), 30
    ),
    "embeddings with an aim": Part(
        "the layer of fope, alibi and kerple beside rope: time and peak memory",
        script("embeddings"),
        60,
        "--presets rope fope alibi kerple --lengths 512 4096 16384 --memory 16384"
        " --budget 0.2 --pairs 3",
        "--presets fope alibi --lengths 64 --memory 64 --budget 0.05",
    ),
    "compiled at 1.2b": Part(
        "speed beside Hugging Face's Trainer, both compiled",
        script("training"),
        80,
        "--shapes 1.2b --steps 2 --rounds 3 --compile",
        "--shapes tiny --steps 1 --rounds 2 --compile --contestants ours",
    ),
    "biases": Part(
        "FlexAttention's biases and their gradients beside the plain softmax",
        _tests("test_flex", "kernel"),
        110,
    ),
    "embeddings": Part(
        "every embedding's layer beside rope: time and peak memory",
        script("embeddings"),
        120,
        "--lengths 512 4096 16384 --memory 512 4096 16384 --budget 0.2 --pairs 3",
        "--presets nope kerple --lengths 64 --memory 64 --budget 0.05",
    ),
}
"""The parts in their order: those with an aim come first."""


def run_part(part: Part, toy: bool, figures: Path, left: float = math.inf) -> dict[str, Any]:
    """Run a part's process: its exit code (None past its limit), seconds, output and figures.

    The limit is the part's, or the seconds that are `left` if they are fewer; a toy has none.
    """
    limit = None if toy else round(min(part.seconds, left))
    log = figures.with_suffix(".log")  # no pipe, which a process that is left over would keep open
    started = time.monotonic()
    try:
        code = _exit_code(part.line(toy, figures), log, limit)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    finally:
        log.unlink(missing_ok=True)
    return {
        "shows": part.shows,
        "command": part.line(toy, Path("FILE"))[1:],
        "exit": code,
        "seconds": round(time.monotonic() - started, 1),
        "limit": limit,
        "output": lines[-KEPT_LINES:],
        "figures": _figures(figures),
    }


def _exit_code(line: list[str], log: Path, limit: float | None) -> int | None:
    """Run a command with its output in `log`; None if it takes longer than `limit` seconds.

    Its children end with it, however it ends.
    """
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            line,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environment(),
            start_new_session=True,
        )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):  # none is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def environment() -> dict[str, str]:
    """The environment of a part: this checkout before what PYTHONPATH already has, one GPU."""
    own = os.environ
    path = os.pathsep.join(filter(None, (str(ROOT), own.get("PYTHONPATH"))))
    return {
        "CUDA_VISIBLE_DEVICES": "0",  # with several, Hugging Face's Trainer would train on all
        **own,
        "PYTHONPATH": path,
        "TOKENIZERS_PARALLELISM": "false",
    }


def end_in_order() -> None:
    """Have SIGTERM end this process as Ctrl-C does, so that it ends the part that runs."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def _figures(path: Path) -> Any:
    """What a part left as JSON, if it did."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def machine() -> dict[str, Any]:
    """The machine and the versions that the figures belong to."""
    import torch

    cuda = torch.cuda.is_available()
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "gpu_memory": torch.cuda.get_device_properties(0).total_memory if cuda else None,
        "cuda": torch.version.cuda,
        "compiler": shutil.which(os.environ.get("CC", "cc")) is not None,
        "headers": (Path(sysconfig.get_path("include")) / "Python.h").exists(),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
    }


def problems(about: Mapping[str, Any]) -> Iterator[str]:
    """What some parts will fail for, a sentence each."""
    missing = [name for name, found in about["packages"].items() if found is None]
    if missing:
        yield f"not installed: {', '.join(missing)}; the parts that import them will fail"
    if about["gpu"] is not None:
        if not about["compiler"]:
            yield "there is no C compiler: all that compiles a kernel will fail"
        if not about["headers"]:
            yield "Python's headers (Python.h) are missing: all that compiles a kernel will fail"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of the checkout; None where there is no git, as on a machine it was carried to.

    `-dirty` follows if a tracked file has changed or a script or a configuration was added, other
    than the figures that are kept.
    """
    kept = [f":(exclude)benchmarks/{name}" for name in ("results", "RESULTS.md")]
    try:
        found = _git("rev-parse", "--show-toplevel", "HEAD")
    except OSError:
        return None
    if found.returncode != 0:
        return None
    top, head = found.stdout.splitlines()
    if Path(top) != ROOT:  # a repository around a checkout that was carried into it
        return None
    changed = _git("diff", "--quiet", "HEAD", "--", ".", *kept)
    added = _git("ls-files", "--others", "--exclude-standard", "--", "*.py", "*.yaml", *kept)
    return head + ("-dirty" if changed.returncode != 0 or added.stdout else "")


def commit_after(before: str | None) -> str | None:
    """The commit of figures that were begun at `before`: `-dirty` if it is another one by now."""
    return f"{before}-dirty" if is_clean(before) and commit() != before else before


def is_clean(commit: str | None) -> bool:
    """Whether a commit is known, without changes."""
    return commit is not None and not commit.endswith("-dirty")


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for each part, then the output of each."""
    lines = [f"{'part':24}{'result':>10}{'seconds':>9}  shows"]
    for name, one in results.items():
        code = one["exit"]
        outcome = "too long" if code is None else "ok" if code == 0 else f"exit {code}"
        lines.append(f"{name:24}{outcome:>10}{one['seconds']:9.1f}  {one['shows']}")
    for name, one in results.items():
        lines += ["", f"== {name}: {' '.join(one['command'])}", *one["output"]]
    return "\n".join(lines) + "\n"


def write(folder: Path, content: Mapping[str, Any]) -> None:
    """Write what is known so far; each file is replaced whole."""
    texts = {"gpu.json": json.dumps(content, indent=1) + "\n", "gpu.txt": table(content["parts"])}
    for name, text in texts.items():
        new = folder / f"{name}.new"
        new.write_text(text, encoding="utf-8")
        new.replace(folder / name)


def arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--toy", action="store_true", help="on a CPU, at toy sizes")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "gpu", help="default: %(default)s"
    )
    parser.add_argument("--commit", help="of a checkout that was carried here without git")
    return parser.parse_args()


def main() -> int:
    """Run the parts one after the other; return the exit code."""
    given = arguments()
    try:
        about = machine()
    except ImportError as error:
        print(f"gpu.py needs torch: {error}", file=sys.stderr)
        return 2
    if about["gpu"] is None and not given.toy:
        why = "this torch is built for CPUs" if about["cuda"] is None else "there is no CUDA device"
        print(f"{why}; --toy runs the same parts on the CPU at toy sizes", file=sys.stderr)
        return 2
    found = about["commit"]
    if given.commit is not None and found not in (None, given.commit):
        why = f"this checkout is at {found}; leave --commit out"
        print(f"--commit {given.commit}: {why}", file=sys.stderr)
        return 2
    for problem in problems(about):
        print(problem, file=sys.stderr)
    folder = given.out.resolve()  # the parts run in ROOT
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    started = time.monotonic()
    for name in given.parts:
        left = TOTAL - (time.monotonic() - started)
        if left < LEAST and not given.toy:
            print(f"{name}: no time is left")
            continue
        print(f"{name}: {PARTS[name].shows} …", end=" ", flush=True)
        figures = folder / f"{name.replace(' ', '-')}.json"
        figures.unlink(missing_ok=True)
        results[name] = one = run_part(PARTS[name], given.toy, figures, left)
        figures.unlink(missing_ok=True)
        print(f"{'ok' if one['exit'] == 0 else 'FAILED'} in {one['seconds']:.0f} s", flush=True)
        found = commit_after(found)
        about["commit"] = found or given.commit
        seconds = round(time.monotonic() - started, 1)
        write(folder, {**about, "toy": given.toy, "seconds": seconds, "parts": results})
    print(f"\n{table(results)}\nin {folder}: gpu.json, gpu.txt")
    failed = any(one["exit"] != 0 for one in results.values())
    return int(failed or len(results) < len(given.parts))


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
