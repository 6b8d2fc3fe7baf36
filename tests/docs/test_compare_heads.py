"""The figures in the heads of measured sweeps are those of the collected results."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from docs.compare_heads import by_sweep, figures, main, meanings, measured_paragraph, problems
from docs.generate.results import FOLDER
from docs.generate.shipped import ROOT, load_shipped

RESULTS = by_sweep(FOLDER)
BITS = "sweeps/length_generalisation/bin_majority.yaml"
HEADS = [name for name in RESULTS if measured_paragraph((ROOT / name).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("name", HEADS)
def test_the_heads_have_the_figures_of_their_results(name: str) -> None:
    assert list(problems(ROOT / name, RESULTS[name])) == []


def test_there_are_measured_heads() -> None:
    assert BITS in HEADS


@pytest.mark.parametrize(
    ("printed", "instead"),
    [("0.9953", "0.9914"), ("0.9922", "0.992218"), ("3,000", "3,100"), ("1.0000", "1.00")],
)
def test_another_figure_is_found_out(
    printed: str, instead: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / BITS).read_text(encoding="utf-8")
    assert printed in text
    found = meanings_of(text.replace(printed, instead))
    wrong = [number for number, what in found.items() if what is None]
    assert wrong == ([] if instead == "1.00" else [instead])  # fewer digits round the same number


def meanings_of(text: str) -> dict[str, str | None]:
    paragraph = measured_paragraph(text)
    assert paragraph is not None
    return meanings(paragraph, load_shipped(ROOT / BITS), RESULTS[BITS].report)


def test_a_mean_is_said_to_be_what_it_is() -> None:
    found = meanings_of((ROOT / BITS).read_text(encoding="utf-8"))
    where = "accuracy.algorithmic_accuracy_by_input_length@150"
    assert found["0.9953"] == f"the mean of {where} of alibi"
    assert found["50"] == "the number of stages pretrain"


def test_a_result_of_other_settings_is_found_out() -> None:
    result = RESULTS[BITS]
    assert result.other_stages == (0, 0)
    report = copy.deepcopy(dict(result.report))
    report["stages"][0]["key"] = "0" * 20
    other = replace(result, report=report)
    assert other.other_stages == (1, 1)
    assert list(problems(ROOT / BITS, other)) == [
        "docs/results has 1 stages that are not the sweep's",
        "docs/results has no result of 1 of its stages",
    ]


def test_a_measured_head_without_a_result_is_found_out() -> None:
    assert list(problems(ROOT / BITS, None)) == [
        "says what was measured, and docs/results has no result of it"
    ]
    assert list(problems(ROOT / "sweeps" / "fope" / "table1.yaml", None)) == []


@pytest.mark.parametrize("name", ["nope.yaml", "../README.md"])
def test_other_files_are_refused(name: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(ROOT / "sweeps" / name)])
    assert stopped.value.code == 2


def test_the_command_says_whether_all_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(ROOT / BITS)]) == 0
    assert capsys.readouterr().out == ""
    assert main([str(ROOT / BITS), "--show"]) == 0
    assert "  0.9953: the mean of" in capsys.readouterr().out


def test_the_paragraph_ends_where_the_next_begins() -> None:
    text = "# Head.\n#\n# Measured (two): 0.5\n#  and 1.\n#\n# Not 2.\nname: x # Measured 3\n"
    assert measured_paragraph(text) == "Measured (two): 0.5 and 1."
    assert (
        measured_paragraph("# Head.\n#\n# Not measured with these settings yet.\nname: x\n") is None
    )


@given(st.floats(min_value=0, max_value=1e7), st.integers(min_value=0, max_value=6))
@example(2097152.3359375, 6)  # a tie
def test_a_number_is_its_own_rounding_and_not_that_of_another(exact: float, digits: int) -> None:
    [figure] = figures(f"it is {exact:,.{digits}f}, as here")
    assert figure.is_rounded(exact)
    assert not figure.is_rounded(exact + 1.1 * 10.0**-digits)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("95 % at 4k / 8k: 4.3e3", [0.95, 4096, 8192, 4300]),
        ("passkey@512, fope-figure1.yaml, 20M, p-RoPE, v1.5b, 2403.00071v1", []),
        ("0.87, 0.06; 1,024 and 1.", [0.87, 0.06, 1024, 1]),
        ("(1.879 to 1.906) 5/6, −0.5", [1.879, 1.906, 5, 6, -0.5]),
    ],
)
def test_what_counts_as_a_number(text: str, values: list[float]) -> None:
    assert [figure.value for figure in figures(text)] == pytest.approx(values)
