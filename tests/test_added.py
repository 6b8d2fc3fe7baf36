"""CONTRIBUTING's worked examples as files of the lab, with tests, and as described plug-ins.

tests/cli/test_run.py has them as plug-ins of a sweep that runs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from worked_examples import EXAMPLES, FILES, ROOT, checkout_with, execute, python

OTHERS = [
    EXAMPLES[f"Adding {one}"][1] for one in ("a family of models", "an evaluation", "an analysis")
]
SCHEMA = "tests/sweep/test_sweep_schema.py"
CURRENT = f"{SCHEMA}::test_the_committed_schema_is_current"
SEPARATOR = "\f"
DESCRIBE = f"""
from fope_lab.cli import main

plugins = ["--plugins", "./gaussian.py", "./abf.py"]
assert main(["embeddings", *plugins]) == 0
for name in ("gaussian", "abf"):
    print({SEPARATOR!r})
    assert main(["embeddings", name, *plugins]) == 0
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lab with all examples in it."""
    return checkout_with(FILES, tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep file with the examples beside it, of which the lab knows nothing."""
    folder = tmp_path_factory.mktemp("sweep")
    for source, _ in EXAMPLES.values():
        (folder / Path(source).name).write_text(FILES[source])
    return folder


@pytest.fixture(scope="module")
def tested(checkout: Path) -> str:
    """What pytest prints of the tests of the examples, those of every embedding for the two that
    are added, and those of the schema and of keys, all in one process."""
    tests = ["tests/embeddings", *OTHERS, "tests/sweep/test_keys.py", SCHEMA]
    added = "gaussian or abf or test_ministral or test_induction or test_cycles"
    chosen = f"{added} or current or option_says or (unless and induction)"
    command = [sys.executable, "-m", "pytest", *tests, "-k", chosen, "-rfEp"]
    return execute(*command, checkout=checkout, folder=checkout).stdout


@pytest.fixture(scope="module")
def passed(tested: str) -> list[str]:
    return re.findall(r"^PASSED (.*)", tested, flags=re.MULTILINE)


def test_they_are_described_with_their_options(folder: Path) -> None:
    command = [sys.executable, "-c", DESCRIBE]
    done = execute(*command, checkout=ROOT, folder=folder)
    assert done.returncode == 0, done.stderr
    listed, gaussian, abf = done.stdout.split(SEPARATOR)
    [line] = [line for line in listed.splitlines() if line.startswith("gaussian ")]
    assert "Guo et al., AAAI 2019, Eq. 8" in line
    assert " 8 in all " in line
    for name in ("width", "shared_layers"):
        assert re.search(rf"^{name} ", gaussian, flags=re.MULTILINE)
    assert re.search(r"^factor +number ≥ 1, ≤ 1e6 +required ", abf, flags=re.MULTILINE)


@pytest.mark.parametrize("name", ["gaussian", "abf"])
def test_an_embedding_passes_its_test_and_the_conformance_tests(
    name: str, checkout: Path, passed: list[str]
) -> None:
    conformance = (checkout / "tests/embeddings/test_conformance.py").read_text()
    assert sum(name in test for test in passed) > conformance.count("@every_embedding\n") > 10


def test_the_others_pass_their_tests_and_all_the_linters(checkout: Path, passed: list[str]) -> None:
    for tests in OTHERS:
        assert any(test.startswith(tests) for test in passed)
    for command in (["check"], ["format", "--check"]):
        python("ruff", *command, *FILES, checkout=checkout, folder=checkout)


def test_the_committed_schema_lacks_them_until_make_schema(
    checkout: Path, tested: str, tmp_path: Path
) -> None:
    """No other test fails. That one names the target, whose recipe is run here with this Python."""
    assert re.findall(r"^(?:FAILED|ERROR) (\S+)", tested, flags=re.MULTILINE) == [CURRENT]
    failure = tested.partition("= FAILURES =")[2].partition("= short test summary")[0]
    assert "`make schema` rewrites it" in failure
    assert len(failure) < 2000
    script = tmp_path / "bin" / "fope-lab"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fope_lab.cli "$@"\n')
    script.chmod(0o755)
    (tmp_path / ".installed").touch()
    made = execute("make", "schema", f"VENV={tmp_path}", checkout=checkout, folder=checkout)
    assert made.returncode == 0, made.stdout + made.stderr
    python("pytest", CURRENT, checkout=checkout, folder=checkout)
