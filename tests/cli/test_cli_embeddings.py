"""`fope-lab embeddings`: the tables, one embedding with its options, and what is refused."""

from __future__ import annotations

import math
import re

import pytest
from rich.console import Console

from fope_lab.cli import main
from fope_lab.cli.commands import catalogue as command
from fope_lab.embeddings import PRESETS, embedding_names
from fope_lab.embeddings.base import EMBEDDING_TYPES
from fope_lab.embeddings.describe import describe
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES

SIZES = ("--head-dim", "64", "--train-length", "512", "--factor", "4")

OPTIONS = [
    ("rope", "base", "number > 1, ≤ 1e15"),
    ("fope", "below_floor", "unit, official"),
    ("fope", "num_frequencies", "integer ≥ 1, ≤ 8192 or null"),
    ("fope", "learned", "true, false"),
    ("p-rope", "p", "number ≥ 0, ≤ 1"),
    ("yarn", "alpha", "number > 0"),
    ("random-rope", "max_length", "integer ≥ 1, ≤ 16777216 or null"),
    ("rotary", "transforms", "list of clip_floor,"),
]
"""An option of each kind, and what there is to choose from."""


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `fope-lab embeddings …` prints."""
    assert main(["embeddings", *arguments]) == 0
    return capsys.readouterr().out


def test_all_presets_with_paper_composition_and_what_they_learn_and_need(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = ask(capsys).splitlines()
    rows = {line.split()[0]: re.split(r" {2,}", line.strip()) for line in lines[1:24]}
    assert list(rows) == embedding_names()
    assert all(row[-1] == PRESETS[name].source for name, row in rows.items())
    assert rows["fope-yarn"][1:4] == ["fourier: clip_floor, yarn", "–", "factor"]
    assert rows["p-rope"][1:4] == ["rotary: truncate {p: 0.75}", "–", "–"]
    assert rows["kerple"][2] == f"{2 * 8} in all"
    assert rows["fire"][2] == f"{1 + 1 + 2 * 32 + 32 * 8 + 8} per layer"
    assert "head_dim 64, num_heads 8, train_length 512, factor 4" in lines[-2]


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("arguments", [(), SIZES, ("fope-yarn",), ("rotary", *SIZES)])
def test_it_fits_a_terminal(
    width: int,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No line is wider, and no name, option or number is broken."""
    wide = set(re.findall(r"[\w.-]+", ask(capsys, *arguments)))
    monkeypatch.setattr(command, "make_console", lambda: Console(width=width))
    text = ask(capsys, *arguments)
    assert max(map(len, text.splitlines())) <= width
    assert set(re.findall(r"[\w.-]+", text)) == wide


def test_the_resolved_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs, attention factor, and FoPE's D, frequencies asked for and effective noise."""
    text = ask(capsys, *SIZES)
    rows = dict(re.findall(r"^([\w-]+) +(\d+ of 32 .*?|– .*?) *$", text, flags=re.MULTILINE))
    assert rows.keys() == set(embedding_names())
    assert rows["rope"].split() == ["32", "of", "32", "1.0000", "–"]
    assert rows["alibi"].split() == ["–", "–", "–"]
    assert rows["yarn"].split()[3] == f"{0.1 * math.log(4) + 1:.4f}"
    noise = 0.3 * math.sqrt(2 / (16 + 16))
    facts = f"coefficient_noise_std {noise:.4g}, num_frequencies 32, series_frequencies 16"
    assert rows["fope"].split(maxsplit=5)[-1] == facts
    slowest = 10_000 ** (-31 / 32)
    wavelength = 2 * math.pi / slowest
    assert f"31  {slowest:.7f}   {wavelength:,.2f}   {512 / wavelength:.3f}" in text
    assert "dynamic-ntk at 2,048 tokens" in text


@pytest.mark.parametrize(
    "name", [*embedding_names(), *EMBEDDING_TYPES.all(), *TRANSFORM_TYPES.all()]
)
def test_every_option_is_listed_by_its_key(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = ask(capsys, name)
    words = " ".join(text.split())
    described = describe(name)
    assert described.source in words
    for part in described.own_parts:
        for key, option in part.options().items():
            assert re.search(rf"^{key} ", text, flags=re.MULTILINE), key
            assert option.doc.split()[-1] in words


@pytest.mark.parametrize(("name", "option", "allowed"), OPTIONS)
def test_what_the_papers_leave_open_is_an_option(
    name: str, option: str, allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.search(rf"^{option} +{re.escape(allowed)} ", ask(capsys, name), flags=re.MULTILINE)


def test_a_value_that_is_set_is_shown_beside_the_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = ask(capsys, "{type: p-rope, p: 2.5e-1}", *SIZES)
    assert "{type: rotary, transforms: [{type: truncate, p: 0.25}]}" in text
    assert re.search(r"^p +number ≥ 0, ≤ 1 +0.75 +0.25 +The fraction", text, flags=re.MULTILINE)
    assert re.search(r"^p-rope +8 of 32 ", text, flags=re.MULTILINE)
    required = ask(capsys, "yarn")
    factor = r"^factor +number ≥ 1, ≤ 1e6 +required +The factor"
    assert re.search(factor, required, flags=re.MULTILINE)
    assert "{type: rotary, transforms: [{type: yarn, factor: …}]}" in required


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fop"], "unknown embedding or transform 'fop'; did you mean 'fope'?"),
        (["clip_flor"], "did you mean 'clip_floor'?"),
        (["{type: fope, sigmaa: 1}"], "embedding.sigmaa: unknown option 'sigmaa' of fope"),
        (["{type: yarn, factor: 0.5}"], "embedding.factor: found 0.5, needs at least 1"),
        (["{type: p-rope, p: 1.5}"], "embedding.p: found 1.5"),
        (["{type: rope"], "is not YAML"),
        (["{type: rope, base: 2, base: 3}"], "'base' is given twice"),
        ([""], "found nothing"),
        (["yarn", "--head-dim", "64", "--train-length", "512"], "embedding.factor: is missing"),
        (["rope", "--head-dim", "33", "--train-length", "512"], "head_dim 33 is odd"),
        (["fope", "--head-dim", "64", "--train-length", "6"], "no frequency is left"),
        ([*SIZES, "--head-dim", "33"], "embedding: head_dim 33 is odd"),
        ([*SIZES, "--num-kv-heads", "3"], "num_heads 8 is not divisible by num_kv_heads 3"),
        ([*SIZES, "--base", "1"], "embedding.base: found 1.0"),
        (["--head-dim", "64"], "--train-length: missing"),
        (["--num-heads", "4"], "--head-dim: missing"),
        (["--head-dim", "64", "--train-length", "512"], "--factor: missing: pi, ntk, yarn,"),
    ],
)
def test_what_is_wrong_is_one_clear_error(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["embeddings", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert says in printed.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--factor", "0.5"], "--factor: found '0.5', needs a number, 1 to 1000000"),
        (["--factor", "nan"], "--factor: found 'nan'"),
        (["--factor", "inf"], "--factor: found 'inf'"),
        (["--train-length", "0"], "--train-length: found '0', needs a whole number, at least 1"),
        (["--num-heads", "-8"], "--num-heads: found '-8'"),
    ],
)
def test_sizes_out_of_range_are_refused(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["embeddings", *SIZES, *arguments])
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err
