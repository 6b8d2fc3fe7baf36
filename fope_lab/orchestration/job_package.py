"""A sweep packed to run on another machine: this code, its sweep files and its local files.

Everything keeps its place: the file /a/b lies at `files/a/b` of the package, and the sweep is
started from the folder that stands for the current one, so that a relative path means there what it
means here. An absolute path is left as it is: it means the same on all machines, a shared disk say.
"""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.data.tokenizer import tokenizer_identity
from fope_lab.durable import files_below
from fope_lab.sweep.document import Document
from fope_lab.sweep.spec import Sweep

PACKAGES = ("fope_lab", "trainers")
MAX_BYTES = 50 * 2**20
"""Of local files that are sent along; Ray itself refuses 100 MiB."""


class SubmitError(Exception):
    """A sweep can't be submitted: why, and what to do."""


@dataclass(frozen=True)
class JobPackage:
    """A ZIP file that runs on a machine with fope-lab's dependencies once it is unpacked.

    `arguments` is how the sweep file is named in `folder`, where the work starts.
    """

    path: Path
    folder: str
    sweep_file: str

    @property
    def size(self) -> int:
        """Bytes to send."""
        return self.path.stat().st_size

    def shell(self, command: Sequence[str]) -> str:
        """What runs `python -m fope_lab.cli COMMAND` in the unpacked package."""
        words = shlex.join(["python", "-m", "fope_lab.cli", *command])
        return f"cd {shlex.quote(self.folder)} && exec {words}"


def build_package(sweep: Sweep, folder: Path) -> JobPackage:
    """Pack a sweep in `folder`. Raises SubmitError if it would not be the same sweep elsewhere."""
    _require_tokenizers_everywhere(sweep)
    tree = folder / "tree"
    for package in PACKAGES:
        _copy_code(package, tree)
    start = tree / _place(Path.cwd())
    start.mkdir(parents=True)
    for path in _files_to_send(sweep):
        target = tree / _place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    sweep_file = os.path.relpath(sweep.path, Path.cwd())
    _require_same_keys(sweep, tree, start, sweep_file)
    archive = shutil.make_archive(str(folder / "package"), "zip", tree)
    return JobPackage(Path(archive), str(_place(Path.cwd())), sweep_file)


def _place(path: Path) -> Path:
    """Where an absolute path lies in the package."""
    return Path("files", *path.parts[1:])


def _copy_code(package: str, tree: Path) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent
    shutil.copytree(source, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    if package == PACKAGES[0]:
        # The version that `--version` and the report name is that of this code.
        version = importlib.metadata.version("fope-lab")
        metadata = tree / f"{package}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: fope-lab\nVersion: {version}\n")


def _require_tokenizers_everywhere(sweep: Sweep) -> None:
    """A tokenizer's path is opened by the workers, wherever they are: it must be absolute."""
    for name in {stage.lineage.tokenizer for stage in sweep.stages if stage.lineage}:
        local = tokenizer_identity(name)["tokenizer"] == "local"
        if local and not os.path.isabs(os.path.expanduser(name)):
            raise SubmitError(
                f"the tokenizer {name} is a relative path, which the cluster's workers can't "
                "open: put it where all nodes see it and give its absolute path"
            )


def _files_to_send(sweep: Sweep) -> list[Path]:
    """The sweep's own files and all that they name by a relative path."""
    sweeps, data = _relative_references(sweep)
    files = [file for path in data for file in (files_below(path) if path.is_dir() else [path])]
    size = sum(file.stat().st_size for file in files)
    if size > MAX_BYTES:
        largest = max(files, key=lambda file: file.stat().st_size)
        raise SubmitError(
            f"{sweep.path} names {size / 2**20:.0f} MiB of local files by relative paths "
            f"(the largest is {largest}); at most {MAX_BYTES / 2**20:.0f} MiB are sent to the "
            "cluster. Put them where all its nodes see them and give the absolute path."
        )
    return [*sweeps, *files]


def _relative_references(sweep: Sweep) -> tuple[list[Path], list[Path]]:
    """Sweep files, and files and folders of data, that are found by relative paths.

    Which text of a sweep file is a path depends on the field, and a grid may hold it: so every text
    is tried, and counts if it leads to something that the resolved stages use.
    """
    configs = [[stage.config, stage.checkpoints] for stage in sweep.stages]
    used = {Path(text) for text in _texts(configs) if os.path.isabs(text) and os.path.exists(text)}
    pending, sweeps, data = [sweep.path], dict[Path, None](), dict[Path, None]()
    while pending:
        path = pending.pop()
        if path in sweeps:
            continue
        sweeps[path] = None
        folders = dict.fromkeys([path.parent, path.parent.parent, Path.cwd()])
        for text in dict.fromkeys(_texts(Document(path).value)):
            if os.path.isabs(os.path.expanduser(text)):
                continue
            other, _, stage = text.partition("#")
            for folder in folders:
                if stage and os.path.isfile(folder / other):
                    pending.append(Path(os.path.abspath(folder / other)))
                for match in _matches(os.path.abspath(folder / text)):
                    found = (u for u in used if u == match or match in u.parents)
                    data.update(dict.fromkeys(found))
    return list(sweeps), list(data)


def _matches(pattern: str) -> list[Path]:
    found = [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)
    return [Path(path) for path in found]


def _texts(value: Any) -> Iterator[str]:
    """Every text in a YAML or JSON value, keys aside."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _require_same_keys(sweep: Sweep, tree: Path, start: Path, sweep_file: str) -> None:
    """Plan the sweep from the package alone, as the cluster will."""
    command = [sys.executable, "-m", "fope_lab.cli", "plan", "--json", sweep_file]
    planned = subprocess.run(
        [*command, "--store", str(tree / "no-store")],
        cwd=start,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if planned.returncode == 0:
        keys = {stage["key"] for stage in json.loads(planned.stdout)["stages"]}
        if keys == {stage.key for stage in sweep.stages}:
            return
    found = planned.stderr.strip().replace(f"{tree}/files", "") or "other stage keys"
    raise SubmitError(
        f"{sweep.path} would not be the same sweep on another machine: {found}\n"
        "Name local files by absolute paths that all nodes of the cluster see, or by paths "
        "relative to the sweep file."
    )
