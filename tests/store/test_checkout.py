"""A recorded commit says whether the code was that of the commit, untracked files included."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fope_lab.store import checkout
from fope_lab.store.checkout import Checkout


def git(folder: Path, *words: str) -> str:
    settings = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *settings, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("fope_lab/embeddings/alibi.py", "trainers/train.py", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one = 1\n")
    git(tmp_path, "init")
    git(tmp_path, "config", "status.showUntrackedFiles", "no")  # as some people set it
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    return tmp_path


def test_a_clean_checkout_is_its_commit(root: Path) -> None:
    (root / "notes.txt").write_text("not code")
    (root / "README.md").write_text("another text")
    found = Checkout.current()
    assert found == Checkout(git(root, "rev-parse", "--short=12", "HEAD"), clean=True)
    assert str(found) == found.commit


@pytest.mark.parametrize(
    "name",
    ["fope_lab/embeddings/alibi.py", "fope_lab/embeddings/new.py", "trainers/train.py",
     "trainers/new/other.py"],
)  # fmt: skip
def test_code_that_is_not_in_the_commit_is_told(root: Path, name: str) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("two = 2\n")
    found = Checkout.current()
    assert not found.clean
    assert str(found) == f"{found.commit}+"


def test_an_installed_package_has_no_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    assert Checkout.current() is None
