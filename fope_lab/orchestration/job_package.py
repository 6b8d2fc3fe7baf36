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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import files_below, sha256_file
from fope_lab.config.errors import UserError
from fope_lab.config.yaml_document import Document
from fope_lab.data.tokenizers.tokenizer import tokenizer_identity
from fope_lab.sweep.keys import digest
from fope_lab.sweep.spec import Sweep

PACKAGES = ("fope_lab", "trainers")
MAX_BYTES = 50 * 2**20
"""Of local files that are sent along; Ray itself refuses 100 MiB."""
COMMAND = "sh start.sh"
"""What runs the sweep where its package is unpacked."""


class SubmitError(UserError):
    """A sweep can't be submitted: why, and what to do."""


START = """\
#!/bin/sh
# Ray starts this where it has unpacked the package: a folder that is elsewhere on other nodes and
# gone after the job. So everything moves into the store, and the paths that stages record last.
if [ -z "$FOPE_LAB_STORE" ]; then
    echo "error: no store: give --store, an absolute path that all nodes of the cluster see," >&2
    echo "or set FOPE_LAB_STORE where Ray is started" >&2
    exit 2
fi
here="$FOPE_LAB_STORE/submitted/"{name}
if [ ! -d "$here" ]; then
    mkdir -p "$FOPE_LAB_STORE/submitted" && cp -r . "$here.$$" || exit 2
    mv -T "$here.$$" "$here" || rm -r "$here.$$"
fi
cd "$here"/{start} || exit 2
export PYTHONPATH="$here:$PYTHONPATH"
exec python -m fope_lab.cli run {sweep_file} --address auto
"""


@dataclass(frozen=True)
class JobPackage:
    """A ZIP file with all that a sweep needs but the installed packages."""

    path: Path

    @property
    def size(self) -> int:
        """Bytes to send."""
        return self.path.stat().st_size


def build_package(sweep: Sweep, folder: Path) -> JobPackage:
    """Pack a sweep in `folder`. Raises SubmitError if it would not be the same sweep elsewhere."""
    _require_tokenizers_everywhere(sweep)
    tree = folder / "tree"
    for package in PACKAGES:
        _copy_code(package, tree)
    for path in _files_to_send(sweep):
        target = tree / _place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    start, sweep_file = _place(Path.cwd()), os.path.relpath(sweep.path, Path.cwd())
    (tree / start).mkdir(parents=True, exist_ok=True)
    (tree / start / ".start").touch()  # an archive may lose a folder that is empty
    _require_same_keys(sweep, tree, start, sweep_file)
    content = {str(path.relative_to(tree)): sha256_file(path) for path in files_below(tree)}
    script = START.format(
        name=shlex.quote(f"{sweep.name}-{digest(content)[:12]}"),
        start=shlex.quote(str(start)),
        sweep_file=shlex.quote(sweep_file),
    )
    (tree / "start.sh").write_text(script)
    return JobPackage(Path(shutil.make_archive(str(folder / "package"), "zip", tree)))


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
    named = {stage.model_spec.tokenizer for stage in sweep.stages if stage.model_spec}
    for name in (one for one in named if isinstance(one, str)):  # others are made by a stage
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
    texts = set(_texts([stage.config for stage in sweep.stages]))
    used = {Path(text) for text in texts if os.path.isabs(text) and os.path.exists(text)}
    checkpoints = {Path(path) for stage in sweep.stages for path in stage.checkpoints.values()}
    pending, sweeps, data = [sweep.path], dict[Path, None](), dict[Path, None]()
    while pending:
        path = pending.pop()
        if path in sweeps:
            continue
        sweeps[path] = None
        folders = dict.fromkeys([path.parent, path.parent.parent, Path.cwd()])
        for text in dict.fromkeys(_texts(Document(path).value)):
            if not text or os.path.isabs(os.path.expanduser(text)):
                continue
            other, _, stage = text.partition("#")
            for folder in folders:
                if stage and os.path.isfile(folder / other):
                    pending.append(Path(os.path.abspath(folder / other)))
                for match in _matches(os.path.abspath(folder / text)):
                    # A stage's folder may be given for the checkpoint in it.
                    inside = {path for path in checkpoints if match in (path, *path.parents)}
                    data.update(dict.fromkeys(inside | used & {match}))
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
        cwd=tree / start,
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
