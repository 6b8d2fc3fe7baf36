"""The package is unpacked in another place and planned there: the same stages, the same keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import kept_sweep
import pytest

from fope_lab.config import plugins
from fope_lab.embeddings.base import EMBEDDING_TYPES
from fope_lab.orchestration import job_package
from fope_lab.orchestration.job_package import COMMAND, SubmitError, build_package
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep
from fope_lab.sweep.graph import Sweep

SWEEP = kept_sweep.PRETRAIN.replace("name: kept", "name: packed")
PLUGIN = """
from dataclasses import dataclass
from fope_lab.embeddings.alibi import Alibi

@dataclass(frozen=True, kw_only=True)
class Packed(Alibi, name="packed", source="me"):
    pass
"""
CHILD = """
name: child
stages:
  perplexity: {kind: perplexity, from: "parent.yaml#pretrain", corpus: python-docs, lengths: [32]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, two texts in it, and a folder for sweep files."""
    project = tmp_path / "project"
    for name in ("one", "two"):
        path = project / "texts" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n\n" * 200)
    (project / "sweeps").mkdir()
    monkeypatch.chdir(project)
    return project


def write(path: Path, corpus: str = "python-docs") -> Path:
    path.write_text(SWEEP.replace("task: passkey", f"corpus: {corpus}"))
    return path


def sent(sweep: Sweep) -> list[str]:
    """The files that go with a sweep, beside the code."""
    return sorted(map(str, job_package._files_to_send(sweep)))


def planned_elsewhere(package: Path, folder: Path) -> set[str]:
    """The stages' keys that the unpacked package plans, all else out of reach."""
    with zipfile.ZipFile(package) as archive:
        archive.extractall(folder / "unpacked")
    script = folder / "unpacked" / "start.sh"
    run = "exec python -m fope_lab.cli run"
    assert run in script.read_text()
    plan = f"exec {sys.executable} -m fope_lab.cli plan --json"
    script.write_text(script.read_text().replace(run, plan).replace(" --address auto", ""))
    process = subprocess.run(
        COMMAND,
        shell=True,
        cwd=folder / "unpacked",
        env={**os.environ, "FOPE_LAB_STORE": str(folder / "a store")},
        check=True,
        capture_output=True,
    )
    [place] = (folder / "a store" / "submitted").iterdir()
    assert (place / "fope_lab" / "cli" / "__init__.py").exists()
    return {stage["key"] for stage in json.loads(process.stdout)["stages"]}


def test_all_that_is_named_by_relative_paths_comes_along_and_plans_the_same(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts found from the sweep's folder and from the current one, and plug-ins, with the code."""
    (project / "three.txt").write_text("three\n\n" * 200)
    for name, source in (("one-file", "one_file.py"), ("folder", "folder/__init__.py")):
        path = project / "sweeps" / source
        path.parent.mkdir(exist_ok=True)
        path.write_text(PLUGIN.replace('"packed"', f'"packed-{name}"'))
    monkeypatch.setattr(plugins, "_loaded", dict(plugins._loaded))
    monkeypatch.setattr(EMBEDDING_TYPES, "_types", dict(EMBEDDING_TYPES.all()))
    path = project / "sweeps" / "own.yaml"
    corpora = "mix: [{corpus: {files: ../texts/*.txt}}, {corpus: {files: [three.txt]}}]"
    text = SWEEP.replace("task: passkey", corpora).replace("rope", "packed-one-file")
    path.write_text(
        f"{text}plugins: [./one_file.py, ./folder]\n"
        "grid: {pretrain.embedding: [packed-one-file, packed-folder]}\n"
    )
    sweep = load_sweep(path)
    package = build_package(sweep, tmp_path)
    assert package.stat().st_size < 2**20
    with zipfile.ZipFile(package) as archive:
        names = {name for name in archive.namelist() if not name.endswith(("/", "/.start"))}
    files = {f"/{name.removeprefix('files/')}" for name in names if name.startswith("files/")}
    own = ("own.yaml", "one_file.py", "folder/__init__.py")
    texts = ("texts/one.txt", "texts/two.txt", "three.txt")
    assert files == {str(project / name) for name in (*(f"sweeps/{one}" for one in own), *texts)}
    source = Path(job_package.__file__).parents[2]
    code = {
        str(path.relative_to(source))
        for name in ("fope_lab", "trainers")
        for path in (source / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    left = {name for name in names if not name.startswith("files/") and "dist-info" not in name}
    assert left == {*code, "start.sh"}
    project.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    assert planned_elsewhere(package, tmp_path) == {stage.key for stage in sweep.stages}


def test_files_in_a_grid_and_in_a_sweep_referred_to(project: Path) -> None:
    parent = write(project / "sweeps" / "parent.yaml")
    with parent.open("a") as file:
        file.write("grid: {pretrain.data.corpus: [{files: ../texts/one.txt}]}\n")
    child = project / "sweeps" / "child.yaml"
    child.write_text(CHILD)
    files = sorted(map(str, [child, parent, project / "texts/one.txt"]))
    assert sent(load_sweep(child)) == files


def test_files_named_by_absolute_paths_stay(project: Path) -> None:
    corpus = f"{{files: {project}/texts/*.txt}}"
    sweep = load_sweep(write(project / "sweeps" / "own.yaml", corpus))
    assert sent(sweep) == [str(sweep.path)]


@pytest.mark.parametrize("reference", ["../model", "../store/pretrain/key"])
def test_a_checkpoint_named_by_a_relative_path_comes_along(project: Path, reference: str) -> None:
    """Its own folder, or that of the stage which made it."""
    from fope_lab.model import Decoder, ModelConfig, save_model

    def write(folder: Path) -> None:
        sizes = ModelConfig(vocab_size=272, num_layers=1, num_heads=2, head_dim=16)
        model = Decoder(sizes, "rope", train_length=32)
        save_model(folder, model, context_length=32, tokenizer="byte")

    if reference == "../model":
        write(project / "model")
    else:
        with Store(project / "store").folder("pretrain", "key").begin("me", {}) as attempt:
            attempt.writer.save_checkpoint(1, write)
            attempt.finish({})
    path = project / "sweeps" / "own.yaml"
    path.write_text(CHILD.replace('"parent.yaml#pretrain"', reference))
    assert [Path(file).name for file in sent(load_sweep(path))].count("model.safetensors") == 1


def test_too_much_to_send_names_the_largest(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_package, "MAX_BYTES", 2_000)
    (project / "texts/large.txt").write_text("large\n\n" * 1000)
    sweep = load_sweep(write(project / "sweeps" / "own.yaml", "{files: ../texts/*.txt}"))
    with pytest.raises(SubmitError, match=r"the largest is .*large\.txt.*absolute path"):
        sent(sweep)


def test_a_tokenizer_must_be_found_from_everywhere(project: Path, tmp_path: Path) -> None:
    (project / "tokenizer.json").write_text("{}")
    path = write(project / "sweeps" / "own.yaml")
    text = path.read_text().replace("head_dim: 16", "head_dim: 16, vocab_size: 512")
    text = text.replace("embedding: rope", "embedding: rope\n    tokenizer: TOKENIZER")
    path.write_text(text.replace("TOKENIZER", "./tokenizer.json"))
    with pytest.raises(SubmitError, match=r"\./tokenizer\.json is a relative path"):
        build_package(load_sweep(path), tmp_path)
    path.write_text(text.replace("TOKENIZER", str(project / "tokenizer.json")))
    job_package._require_tokenizers_everywhere(load_sweep(path))


def test_a_package_that_plans_something_else_is_not_sent(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = load_sweep(write(project / "sweeps" / "own.yaml", "{files: ../texts/*.txt}"))
    send = job_package._files_to_send(sweep)
    monkeypatch.setattr(job_package, "_files_to_send", lambda sweep: send[:-1])
    with pytest.raises(SubmitError, match="its stages get other keys"):
        build_package(sweep, tmp_path / "one-less")
    monkeypatch.setattr(job_package, "_files_to_send", lambda sweep: send[:1])
    with pytest.raises(SubmitError, match=r"no file matches '\.\./texts/\*\.txt'"):
        build_package(sweep, tmp_path / "none")
