"""Packs a sweep to run on another machine: this code, its sweep files and its local files.

The file /a/b becomes `files/a/b` in the package, and the sweep starts in the folder that stands for
the current one, so that relative paths mean the same there. Absolute paths must exist everywhere.
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
from pathlib import Path
from typing import Any

from fope_lab.config.atomic_files import files_below, sha256_file
from fope_lab.config.plugins import GROUP, INIT, installed_plugins, loaded_plugins
from fope_lab.config.problems import UserError
from fope_lab.config.yaml_document import Document
from fope_lab.stages.key import digest
from fope_lab.sweep.graph import Sweep

PACKAGES = ("fope_lab", "trainers")
MAX_BYTES = 50 * 2**20
"""The limit for the local files in a package; Ray itself refuses 100 MiB."""
COMMAND = "sh start.sh"
"""The command that runs the sweep, in the folder where its package is unpacked."""


class SubmitError(UserError):
    """A sweep can't be submitted; the text says why and what to do."""


START = """\
#!/bin/sh
# Ray runs this in the folder where it has unpacked the package. That folder has another path on
# other nodes and is deleted after the job, so everything is copied into the store first. Then the
# paths that stages record stay valid.
if [ -z "$FOPE_LAB_STORE" ]; then
    echo "error: no store: give --store, an absolute path that all nodes can read," >&2
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


def build_package(sweep: Sweep, folder: Path) -> Path:
    """Write a ZIP file with all that a sweep needs except the installed packages; returns its path.

    Raises SubmitError if it would be another sweep on the cluster.
    """
    _require_tokenizers_everywhere(sweep)
    tree = folder / "tree"
    plugins = (p.module.partition(".")[0] for p in loaded_plugins() if not p.by_path)
    for package in dict.fromkeys([*PACKAGES, *plugins]):
        _copy_code(package, tree)
    _write_metadata(tree)
    for path in _files_to_send(sweep):
        target = tree / _place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    start, sweep_file = _place(Path.cwd()), os.path.relpath(sweep.path, Path.cwd())
    (tree / start).mkdir(parents=True, exist_ok=True)
    (tree / start / ".start").touch()  # an archive may omit an empty folder
    _require_same_keys(sweep, tree, start, sweep_file)
    content = {str(path.relative_to(tree)): sha256_file(path) for path in files_below(tree)}
    script = START.format(
        name=shlex.quote(f"{sweep.name}-{digest(content)[:12]}"),
        start=shlex.quote(str(start)),
        sweep_file=shlex.quote(sweep_file),
    )
    (tree / "start.sh").write_text(script)
    return Path(shutil.make_archive(str(folder / "package"), "zip", tree))


def _place(path: Path) -> Path:
    return Path("files", *path.parts[1:])


def _copy_code(package: str, tree: Path) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin)
    if source.name != INIT:
        shutil.copy(source, tree / source.name)
        return
    shutil.copytree(source.parent, tree / package, ignore=shutil.ignore_patterns("__pycache__"))


def _write_metadata(tree: Path) -> None:
    """Write what names the version of this code, in `--version` and reports, and all plug-ins."""
    version = importlib.metadata.version("fope-lab")
    folder = tree / f"{PACKAGES[0]}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fope-lab\nVersion: {version}\n")
    points = "".join(f"{module} = {module}\n" for module in installed_plugins())
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\n{points}")


def _require_tokenizers_everywhere(sweep: Sweep) -> None:
    """Raises SubmitError for a tokenizer with a relative path, because workers open that path."""
    for stage in sweep.stages:
        if stage.model_spec and (name := stage.model_spec.relative_tokenizer):
            raise SubmitError(
                f"the tokenizer {name} is a relative path, which the cluster's workers can't open:"
                " put it where all nodes can read it and give its absolute path"
            )


def _files_to_send(sweep: Sweep) -> list[Path]:
    """The sweep files, and all files that they name by relative paths. Raises SubmitError."""
    sweeps, data = _relative_references(sweep)
    files = [file for path in data for file in (files_below(path) if path.is_dir() else [path])]
    size = sum(file.stat().st_size for file in files)
    if size > MAX_BYTES:
        largest = max(files, key=lambda file: file.stat().st_size)
        raise SubmitError(
            f"{sweep.path} names {size / 2**20:.0f} MiB of local files by relative paths "
            f"(the largest is {largest}); at most {MAX_BYTES / 2**20:.0f} MiB are sent to the "
            "cluster. Put them where all its nodes can read them and give absolute paths."
        )
    return [*sweeps, *files]


def _relative_references(sweep: Sweep) -> tuple[list[Path], list[Path]]:
    """The sweep files, and the files and folders of data, that are named by relative paths."""
    # Which texts are paths depends on their fields: each is tried, and counts if it leads to a
    # file that the resolved stages use.
    texts = set(_texts([stage.config for stage in sweep.stages]))
    used = {Path(text) for text in texts if os.path.isabs(text) and os.path.exists(text)}
    plugins = {plugin.place for plugin in loaded_plugins()}
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
                pattern = os.path.abspath(folder / text)
                exists = os.path.exists(pattern)
                for match in map(Path, [pattern] if exists else glob.glob(pattern, recursive=True)):
                    # A stage's folder may be given for the checkpoint in it.
                    inside = {path for path in checkpoints if match in (path, *path.parents)}
                    code = {match} if match.resolve() in plugins else set()
                    data.update(dict.fromkeys(inside | code | used & {match}))
    return list(sweeps), list(data)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _require_same_keys(sweep: Sweep, tree: Path, start: Path, sweep_file: str) -> None:
    """Raises SubmitError if a plan made from the package alone has other keys than the sweep."""
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
    problem = planned.stderr.strip().replace(f"{tree}/files", "") or "its stages get other keys"
    raise SubmitError(
        f"{sweep.path} would not be the same sweep on another machine: {problem}\n"
        "Name local files by absolute paths that all nodes of the cluster can read, or by paths "
        "relative to the sweep file."
    )
