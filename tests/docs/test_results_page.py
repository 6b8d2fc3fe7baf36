"""The results page has every number of the committed reports, and nothing else."""

from __future__ import annotations

import functools
import re

import pytest

from docs.generate.results import Result, all_results
from docs.generate.results_page import page


@functools.cache  # not at the import, which costs every process of the tests seconds
def sections() -> dict[str, str]:
    """The sections of the page by the name of their sweep."""
    parts = re.split(r"^## ", page(""), flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part for part in parts}


def named(result: Result) -> str:
    return result.report["sweep"]["name"]


@pytest.mark.parametrize("result", all_results(), ids=named)
def test_a_section_names_commit_and_command(result: Result) -> None:
    section = sections()[named(result)]
    assert f"`{result.commit}`" in section
    assert result.command in section


@pytest.mark.parametrize("result", all_results(), ids=named)
def test_the_value_of_every_seed_is_there(result: Result) -> None:
    section = sections()[named(result)]
    for group in result.groups:
        cells = [cell for row in group.rows.values() for cell in row.values()]
        seeds = {value["seed"] for cell in cells for value in cell["values"]}
        assert (f'??? note "{group.title}: every seed"' in section) is (len(seeds) > 1)
        for value in (value for cell in cells for value in cell["values"]):
            assert group.metric.format(value["value"]) in section


@pytest.mark.parametrize("result", all_results(), ids=named)
def test_published_numbers_stand_beside_ours_with_the_interval(result: Result) -> None:
    section, beside = sections()[named(result)], result.report["beside"]
    for one in [] if beside is None else beside["comparisons"]:
        if one["paper"] is None or one["ci95"] is None:
            continue
        low, high = (f"{end:.4g}" for end in one["ci95"])
        assert f"| {one['paper']:.4g} | {one['mean']:.4g} | {low} to {high} |" in section


@pytest.mark.parametrize("result", all_results(), ids=named)
def test_a_result_of_other_settings_is_marked(result: Result) -> None:
    said = "The sweep file has changed since this run" in sections()[named(result)]
    assert said is (result.other_stages != (0, 0))


def test_an_analysis_has_words_for_its_numbers() -> None:
    section = sections()["base-bound"]
    assert "| smallest base that holds up to 4096 tokens | 28,692 |" in section
    assert "0.0424 · length^1.628" in section
    assert "smallest_4096" not in section


def test_a_rule_for_the_seeds_leaves_no_stage_missing() -> None:
    [result] = (one for one in all_results() if one.sweep.endswith("unique_copy_ape.yaml"))
    assert result.report["counts"]["not needed"] == 30
    assert result.other_stages == (0, 0)
    section = sections()[named(result)]
    assert "10 stages done" in section
    assert "†" not in section  # the trained 103 are tokens, and the curve is over symbols
    assert '??? note "Every training"' in section
    assert "seed=4\\] | 24,000 | 32.0&nbsp;min |" in section
    assert "The seeds have 0.9975, 0.9990" in section  # the paper's, as its notes say
