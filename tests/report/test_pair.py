"""Two sweeps beside each other, through the command line: tables, changes, and clear errors."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from report_samples import BASE, finish, typical_numbers

from fope_lab.cli.app import main
from fope_lab.provenance.source import SourceFile
from fope_lab.report.compare.changes import code_changes
from fope_lab.report.results.stage_results import read_stages
from fope_lab.store import Store
from fope_lab.store.sources import Sources
from fope_lab.sweep import load_sweep, plan

RATE = BASE["stages"]["pretrain"]["train"]


def write_sweep(path: Path, **changes: Any) -> Path:
    content = {**BASE, "grid": {"pretrain.embedding": ["rope", "nope"]}, **changes}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def slower() -> dict[str, Any]:
    """The stages with another learning rate."""
    train = {**RATE, "learning_rate": 1e-4}
    return {**BASE["stages"], "pretrain": {**BASE["stages"]["pretrain"], "train": train}}


def fill(path: Path, store: Store, factor: float = 1.0) -> None:
    numbers = lambda stage, length: typical_numbers(stage, length) * (factor if length else 1)  # noqa: E731
    finish(plan(load_sweep(path), store), store, numbers)


def report(*words: object) -> int:
    return main(["report", *map(str, words)])


@pytest.fixture
def sweeps(tmp_path: Path, store: Store) -> tuple[Path, Path]:
    """A sweep, and one with another learning rate, whose numbers are a tenth lower."""
    before = write_sweep(tmp_path / "before.yaml", name="before")
    after = write_sweep(tmp_path / "after.yaml", name="after", stages=slower())
    fill(before, store)
    fill(after, store, 0.9)
    return before, after


def test_two_sweeps_in_every_form(
    sweeps: tuple[Path, Path], store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = sweeps
    assert report(before, after, "--store", store.root) == 0
    text = capsys.readouterr().out
    table = text.partition("Perplexity (perplexity)")[2]
    rows = [line.split() for line in table.splitlines() if line.startswith("rope")]
    assert [row[1] for row in rows[:3]] == ["before", "after", "difference"]
    assert rows[2].count("better") == 4
    assert "pretrain: train.learning_rate: 0.0006 → 0.0001 (6 stages)" in text
    page = store.root / "reports" / "before" / "compared-before-and-after.html"
    assert f"comparison: {page}" in text
    html = page.read_text(encoding="utf-8")
    assert "train.learning_rate: 0.0006 → 0.0001" in html
    assert 'class="better"' in html

    assert report(before, after, "--store", store.root, "--markdown") == 0
    assert "| rope | difference | 3 |" in capsys.readouterr().out
    assert report(before, after, "--store", store.root, "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["first"]["name"], content["second"]["name"]) == ("before", "after")
    [cell] = [
        c
        for c in content["cells"]
        if (c["metric"], c["x"]) == ("perplexity_by_length", 64)
        and c["axes"] == {"pretrain.embedding": "rope"}
    ]
    means = [cell[side]["mean"] for side in ("first", "second")]
    assert means[1] == pytest.approx(0.9 * means[0])
    assert cell["difference"]["estimate"]["mean"] == pytest.approx(means[1] - means[0])
    assert (cell["difference"]["paired"], cell["difference"]["change"]) == (True, "better")


def test_an_axis_that_one_sweep_lacks_has_the_value_of_its_section(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    several = write_sweep(tmp_path / "several.yaml", name="several")
    single = write_sweep(tmp_path / "single.yaml", name="single", grid={}, stages=slower())
    fill(several, store)
    fill(single, store)
    assert report(several, single, "--store", store.root, "--json") == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    both = {str(c["axes"]) for c in cells if c["first"] and c["second"]}
    assert both == {str({"pretrain.embedding": "rope"})}
    alone = {str(c["axes"]) for c in cells if not c["second"]}
    assert alone == {str({"pretrain.embedding": "nope"})}


def test_an_embedding_that_an_evaluation_exchanges(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it keeps the model's own, it is matched with the same of a sweep without the axis."""
    yarn = {"type": "yarn", "factor": 2}
    plain = write_sweep(tmp_path / "plain.yaml", name="plain", grid={})
    stages = {**BASE["stages"], "passkey": {**BASE["stages"]["passkey"], "embedding": yarn}}
    grid = {"perplexity.embedding": [None, yarn]}
    exchanged = write_sweep(tmp_path / "other.yaml", name="exchanged", grid=grid, stages=stages)
    fill(plain, store)
    fill(exchanged, store)
    assert report(plain, exchanged, "--store", store.root, "--json") == 0
    content = json.loads(capsys.readouterr().out)
    perplexities = [c for c in content["cells"] if c["stage"] == "perplexity"]
    both = {str(c["axes"]) for c in perplexities if c["first"] and c["second"]}
    assert both == {str({"perplexity.embedding": "rope"})}
    assert content["settings"] == [
        {
            "section": "passkey",
            "field": "embedding",
            "first": "none",
            "second": "yarn(factor=2)",
            "stages": 3,
        }
    ]


def test_settings_of_stages_that_are_not_done_are_compared(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write_sweep(tmp_path / "before.yaml", name="before")
    passkey = {**BASE["stages"]["passkey"], "trials": 77}
    stages = {**BASE["stages"], "passkey": passkey}
    after = write_sweep(tmp_path / "after.yaml", name="after", stages=stages)
    fill(before, store)  # and so what the other shares with it
    assert report(before, after, "--store", store.root) == 0
    text = capsys.readouterr().out
    assert "passkey: trials: 200 → 77 (6 stages)" in text
    assert "only in before: passkey of passkey[embedding=rope]" in text


def git(folder: Path, *words: str) -> None:
    names = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", "-C", str(folder), *names, *words], check=True, capture_output=True)


def test_one_sweep_at_two_commits(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    path = write_sweep(folder / "sample.yaml")
    fill(path, store)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    git(folder, "tag", "v1")
    write_sweep(path, stages=slower())
    fill(path, store, 1.1)
    assert report(f"{path}@v1", path, "--store", store.root) == 0
    text = capsys.readouterr().out
    assert "train.learning_rate: 0.0006 → 0.0001" in text
    assert "worse" in text
    assert "sample@" in text
    for wrong, words in (
        (f"{path}@v2", "found @v2, which is not a commit, branch or tag of its git repository"),
        (f"{folder / 'none.yaml'}@v1", "is not in commit"),
        (f"{folder / 'none.yaml'}", "none.yaml"),
        (f"{folder}@v1", "found @v1 after a folder, needs a sweep file"),
        (f"{tmp_path / 'x.yaml'}@v1", "is in no git repository"),
    ):
        assert report(wrong, path, "--store", store.root) == 2
        assert words in capsys.readouterr().err


def test_a_shipped_sweep_at_a_commit(
    tmp_path: Path,
    store: Store,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is found by its name from any folder, as without a commit."""
    monkeypatch.chdir(tmp_path)
    assert report("quickstart@no-such-commit", "--store", store.root) == 2
    error = capsys.readouterr().err
    assert "sweeps/quickstart.yaml: found @no-such-commit, " in error


def test_the_same_stages_in_two_stores(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_sweep(tmp_path / "sample.yaml")
    other = Store(tmp_path / "other")
    fill(path, store)
    fill(path, other, 0.5)
    assert report(path, path, "--store", store.root, "--other-store", other.root) == 0
    text = capsys.readouterr().out
    assert "No setting differs." in text
    assert "better" in text


def test_what_cannot_be_compared_is_one_clear_error(
    sweeps: tuple[Path, Path], store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = sweeps
    stages = {**BASE["stages"], "read": BASE["stages"]["perplexity"]}
    del stages["perplexity"], stages["passkey"]
    stages["train"] = stages.pop("pretrain")
    stages["read"] = {**stages["read"], "from": "train"}
    apart = write_sweep(tmp_path / "apart.yaml", name="apart", stages=stages, grid={})
    fill(apart, store)
    place = ("--store", store.root)
    for words, told in (
        ((before, before, *place), "have the same stages in the same store"),
        ((before, apart, *place), "before and apart have no result in common"),
        ((before, after, *place, "--latex"), "--latex is for the report of one sweep"),
        ((before, after, *place, "--figures", tmp_path), "--figures is for the report of one"),
        ((before, *place, "--other-store", tmp_path), "name OTHER, too"),
        ((before, after, *place, "--other-store", tmp_path / "no"), "there is no store at"),
    ):
        assert report(*words) == 2
        error = capsys.readouterr().err
        assert told in error
        assert len(error.strip().splitlines()) == 1


def test_other_code_and_packages_are_named(tmp_path: Path) -> None:
    path = write_sweep(tmp_path / "sample.yaml", grid={}, seeds=[0])
    stores = Store(tmp_path / "a"), Store(tmp_path / "b")
    results = []
    for store, code, torch in zip(stores, ("1", "2"), ("2.12.0", "2.13.0"), strict=True):
        name = Sources(store.root).keep(
            {"fope_lab/x.py": SourceFile(code, code), "fope_lab/y.py": SourceFile("3", "3")}
        )
        sweep = load_sweep(path)
        for stage in sweep.stages:
            made_by = {
                "commit": f"abc{code}",
                "clean": True,
                "versions": {"torch": torch, "ray": "2"},
                "source": name,
            }
            with store.folder(stage.kind, stage.key).begin("t", {}, made_by=made_by) as attempt:
                attempt.finish({"loss": 1.0})
        results.append(read_stages(sweep.stages, store))
    found = code_changes(list(zip(*results, strict=True)), stores)
    assert {change.section for change in found} == {r.stage.section for r in results[0]}
    for change in found:
        assert (change.first, change.second, change.files) == ("abc1", "abc2", ("fope_lab/x.py",))
        assert change.packages == ("torch 2.12.0 → 2.13.0",)
