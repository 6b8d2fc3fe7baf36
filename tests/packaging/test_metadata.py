"""The files about the project agree with each other and with the schemas that read them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAPERS = {"2412.17739", "2403.00071", "2410.06205"}
"""The papers that fope-lab reproduces."""


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_is_that_of_the_project() -> None:
    citation = read("CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]
    assert {each["url"].rpartition("/")[2] for each in citation["references"]} == PAPERS


def test_the_citation_has_what_its_format_requires() -> None:
    """The required fields and the types of references of the Citation File Format 1.2.0."""
    citation = read("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] in ("software", "dataset")
    for reference in citation["references"]:
        assert {"type", "title", "authors"} <= reference.keys()
        assert reference["type"] in ("article", "conference-paper")
        assert isinstance(reference["year"], int)
        for author in reference["authors"]:
            assert author.keys() == {"family-names", "given-names"}


def test_the_changelog_has_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\]", text, flags=re.MULTILINE)
    assert headings[:2] == ["Unreleased", PROJECT["version"]]
    groups = re.findall(r"^### (.+)", text, flags=re.MULTILINE)
    assert set(groups) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_workflow_runs_what_continuous_integration_runs() -> None:
    [job] = read(".github/workflows/ci.yml")["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step][-1] == ".ci/run"
    options = [step["with"] for step in job["steps"] if "with" in step]
    [python] = [each["python-version"] for each in options if "python-version" in each]
    assert f">={python}" == PROJECT["requires-python"]


@pytest.mark.parametrize("name", ["bug", "number", "idea"])
def test_a_form_for_issues_has_what_github_requires(name: str) -> None:
    form = read(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    ids = [item["id"] for item in form["body"]]
    assert len(ids) == len(set(ids))
    assert all(item["attributes"]["label"] for item in form["body"])
