"""`fope-lab embeddings`: the tables, one embedding with its options, and what is refused."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from fope_lab.cli import main
from fope_lab.cli.commands import catalogue as command
from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings import PRESETS, EmbeddingError, embedding_names
from fope_lab.embeddings.base import EMBEDDING_TYPES, PLACES, Embedding
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES
from fope_lab.embeddings.spec import named, parts_of

SIZES = ("--head-dim", "64", "--train-length", "512")

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


@pytest.fixture
def windowed() -> Iterator[str]:
    """The name of an added embedding with a required option that nothing has an example for."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Windowed(Embedding, name="windowed", source="nobody"):
        """Does nothing."""

        span: Annotated[int, Interval(ge=1), Doc("tokens")]

    yield Windowed.name
    del EMBEDDING_TYPES._types[Windowed.name]


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `fope-lab embeddings …` prints."""
    assert main(["embeddings", *arguments]) == 0
    return capsys.readouterr().out


def test_all_presets_with_paper_composition_and_what_they_learn_and_need(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = ask(capsys).splitlines()
    split = [re.split(r" {2,}", line.strip()) for line in lines[:-2]]
    rows = {row[0]: row for row in split if len(row) == 5 and row[0] != "embedding"}
    assert [row[0] for row in split if len(row) == 1 and row[0]] == list(PLACES.values())
    assert sorted(rows) == sorted(embedding_names())
    assert all(row[-1] == named(name).source for name, row in rows.items())
    assert rows["fope-yarn"][1:4] == ["fourier: clip_floor, yarn", "–", "factor"]
    assert rows["p-rope"][1:4] == ["rotary: truncate {p: 0.75}", "–", "–"]
    assert rows["kerple"][2] == f"{2 * 8} in all"
    assert rows["fire"][2] == f"{1 + 1 + 2 * 32 + 32 * 8 + 8} per layer"
    assert "head_dim 64, num_heads 8, train_length 512" in lines[-2]


def test_an_added_embedding_that_needs_an_option_is_listed_too(
    windowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    [line] = [line for line in ask(capsys).splitlines() if line.startswith(windowed)]
    assert line.split() == [windowed, "–", "?", "span", "nobody"]


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("arguments", [(), ("fope-yarn",), ("rotary", *SIZES), ("fope", *SIZES)])
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


def test_the_numbers_at_a_shape(capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs, attention factor, and FoPE's D, frequencies asked for and effective noise."""
    text = ask(capsys, "rope", *SIZES)
    slowest = 10_000 ** (-31 / 32)
    wavelength = 2 * math.pi / slowest
    assert f"31  {slowest:.7f}   {wavelength:,.2f}   {512 / wavelength:.3f}" in text
    assert "pairs that rotate: 32 of 32\nattention factor: 1.0000\n" in text
    yarn = ask(capsys, "{type: yarn, factor: 4}", *SIZES)
    assert f"attention factor: {0.1 * math.log(4) + 1:.4f}" in yarn
    fope = ask(capsys, "fope", *SIZES)
    noise = 0.3 * math.sqrt(2 / (16 + 16))
    assert f"coefficient_noise_std: {noise:.4g}\nnum_frequencies: 32\n" in fope
    assert "series_frequencies: 16\npairs that rotate: 16 of 32\n" in fope
    assert re.search(r"^ *31 +0 +– +0$", fope, flags=re.MULTILINE)
    fire = ask(capsys, "fire", *SIZES, "--num-kv-heads", "4")
    assert "\nAt head_dim 64, num_heads 8, num_kv_heads 4, train_length 512:\n" in fire
    assert fire.splitlines()[-1] == f"learned parameters: {1 + 1 + 2 * 32 + 32 * 8 + 8} per layer"


def test_frequencies_at_another_length(capsys: pytest.CaptureFixture[str]) -> None:
    """At four times the training length, those of dynamic NTK are those of NTK by a factor of 4."""
    ladder = re.compile(r"^ *\d+  \d.*$", flags=re.MULTILINE)
    fixed, rope, trained, longer = (
        ladder.findall(ask(capsys, *arguments, *SIZES))
        for arguments in (
            ("{type: ntk, factor: 4}",),
            ("rope",),
            ("dynamic-ntk",),
            ("dynamic-ntk", "--length", "2048"),
        )
    )
    assert len(fixed) == 32
    assert trained == rope != fixed
    assert longer == fixed


def test_a_transform_is_shown_on_ropes_frequencies(capsys: pytest.CaptureFixture[str]) -> None:
    lone = ask(capsys, "{type: truncate, p: 0.75}", *SIZES)
    assert lone.startswith("truncate: transform, Barbero")
    assert "\n{type: truncate, p: 0.75}\n" in lone
    assert lone.partition("\nAt ")[2] == ask(capsys, "p-rope", *SIZES).partition("\nAt ")[2]


@pytest.mark.parametrize(
    "name", [*embedding_names(), *EMBEDDING_TYPES.all(), *TRANSFORM_TYPES.all()]
)
def test_every_option_is_listed_by_its_key(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = ask(capsys, name)
    words = " ".join(text.split())
    assert named(name).source in words
    for part in parts_of(named(name).composition):
        for key, option in part.options.items():
            assert re.search(rf"^{key} ", text, flags=re.MULTILINE), key
            assert option.doc.split()[-1] in words


@pytest.mark.parametrize(("name", "option", "allowed"), OPTIONS)
def test_what_the_papers_leave_open_is_an_option(
    name: str, option: str, allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.search(rf"^{option} +{re.escape(allowed)} ", ask(capsys, name), flags=re.MULTILINE)


def test_a_description_is_shown_with_what_it_sets(capsys: pytest.CaptureFixture[str]) -> None:
    text = ask(capsys, "{type: p-rope, p: 2.5e-1}", *SIZES)
    assert "{type: rotary, transforms: [{type: truncate, p: 0.25}]}" in text
    assert re.search(r"^option +allowed +value +meaning", text, flags=re.MULTILINE)
    assert re.search(r"^p +number ≥ 0, ≤ 1 +0.25 +The fraction", text, flags=re.MULTILINE)
    assert "pairs that rotate: 8 of 32" in text
    listed = ask(capsys, "{type: rotary, transforms: [clip_floor, {type: yarn, factor: 2}]}")
    assert re.findall(r"^(\w+): ", listed, flags=re.MULTILINE) == [
        "rotary", "rotary", "clip_floor", "yarn",
    ]  # fmt: skip
    required = ask(capsys, "yarn")
    factor = r"^factor +number ≥ 1, ≤ 1e6 +required +The factor"
    assert re.search(factor, required, flags=re.MULTILINE)
    assert "{type: rotary, transforms: [yarn]}" in required


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fop"], "unknown embedding or transform 'fop'; did you mean 'fope'?"),
        (["clip_flor"], "did you mean 'clip_floor'?"),
        (["{type: clip_flor}"], "embedding.type: unknown embedding 'clip_flor'"),
        (["{p: 1}"], "embedding.type: is missing"),
        (["{type: [rope]}"], "embedding.type: found ['rope']"),
        (["[rope]"], "embedding: found ['rope']"),
        (["{type: rotary, transforms: [yarn]}"], "embedding.transforms[0].factor: is missing"),
        (["{type: truncate, p: 2}"], "embedding.transforms[0].p: found 2"),
        (["{type: fope, sigmaa: 1}"], "embedding.sigmaa: unknown option 'sigmaa' of fope"),
        (["{type: yarn, factor: 0.5}"], "embedding.factor: found 0.5, needs at least 1"),
        (["{type: p-rope, p: 1.5}"], "embedding.p: found 1.5"),
        (["{type: rope"], "is not YAML"),
        (["{type: rope, base: 2, base: 3}"], "'base' is given twice"),
        ([""], "found nothing"),
        (["yarn", "--head-dim", "64", "--train-length", "512"], "embedding.factor: is missing"),
        (["rope", "--head-dim", "33", "--train-length", "512"], "head_dim 33 is odd"),
        (["fope", "--head-dim", "64", "--train-length", "6"], "no frequency is left"),
        (["rope", *SIZES, "--num-kv-heads", "3"], "num_heads 8 is not divisible by num_kv_heads 3"),
        (["rope", "--head-dim", "64"], "--train-length: missing"),
        (["rope", "--length", "4"], "--head-dim: missing"),
        ([*SIZES], "NAME: missing"),
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


scalars = st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.text(max_size=3)
names = st.sampled_from([*PRESETS, *EMBEDDING_TYPES.all(), *TRANSFORM_TYPES.all(), "x"])
descriptions = st.deferred(
    lambda: (
        names
        | st.fixed_dictionaries(
            {"type": names},
            optional={
                **dict.fromkeys(("factor", "base", "p", "sigma"), st.floats(0, 9) | scalars),
                "transforms": st.lists(descriptions | scalars, max_size=3) | scalars,
            },
        )
    )
)


@given(descriptions | scalars | st.dictionaries(st.text(max_size=4), scalars))
@settings(max_examples=200, deadline=None)
def test_whatever_is_described_is_told_or_refused(spec: Any) -> None:
    try:
        name, told = command._described(spec, command._as_embedding(spec))
    except EmbeddingError:
        return
    assert parts_of(told)
    if not isinstance(spec, str):
        assert command._described(told, command._as_embedding(told)) == (told["type"], told)
    assert named(name).source


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
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
