"""How lines are named, told apart and put into panels; and where bits per byte are shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import report_of

from fope_lab.report.results.layout import read_axes, short_names, shorten_labels, unique_endings
from fope_lab.stages.metric import Metric, Unit


@dataclass(frozen=True)
class Member:
    axes: dict[str, Any] = field(default_factory=dict)
    embedding: str | None = None


def test_names_are_the_shortest_that_tell_axes_apart() -> None:
    paths = ["pretrain.embedding", "extend.embedding", "pretrain.model.num_layers"]
    assert short_names(paths) == {
        "pretrain.embedding": "pretrain.embedding",
        "extend.embedding": "extend.embedding",
        "pretrain.model.num_layers": "num layers",
    }


def test_other_axes_part_embeddings_into_panels() -> None:
    members = [
        Member({"p.model.scale": scale, "p.embedding": name}, name)
        for scale in ("60m", "180m")
        for name in ("rope", "fope")
    ]
    axes = read_axes(members)
    assert axes.varying == ("p.embedding", "p.model.scale")
    assert [axes.label(m, "s") for m in members] == ["rope", "fope", "rope", "fope"]
    assert [axes.panel(m) for m in members] == ["scale 60m"] * 2 + ["scale 180m"] * 2


def test_what_follows_from_the_embedding_makes_no_panels() -> None:
    tokens = {"nope": 4, "rope": 2, "fope": 2}
    members = [Member({"p.embedding": e, "p.tokens": n}, e) for e, n in tokens.items()]
    axes = read_axes(members)
    assert (axes.varying, axes.panels) == (("p.embedding", "p.tokens"), ())
    assert [axes.label(member, "s") for member in members] == list(tokens)
    again = [*members, Member({"p.embedding": "rope", "p.tokens": 4}, "rope")]
    assert read_axes(again).panels == ("p.tokens",)


def test_a_setting_that_two_stages_share_is_one_axis() -> None:
    zipped = [Member({"p.data.subtask": task, "e.subtask": task}) for task in ("cot", "rec")]
    axes = read_axes(zipped)
    assert axes.varying == ("p.data.subtask",)
    assert [axes.label(member, "s") for member in zipped] == ["subtask cot", "subtask rec"]
    crossed = [*zipped, Member({"p.data.subtask": "cot", "e.subtask": "rec"})]
    assert read_axes(crossed).varying == ("p.data.subtask", "e.subtask")
    other = [Member({"p.length": n, "e.lengths": n}) for n in (1, 2)]
    assert read_axes(other).varying == ("p.length", "e.lengths")


def test_without_embeddings_to_compare_the_axes_themselves_are_lines() -> None:
    members = [Member({"p.embedding.sigma": sigma}, "fope") for sigma in (0.1, 0.2)]
    axes = read_axes(members)
    assert [axes.label(m, "s") for m in members] == ["sigma 0.1", "sigma 0.2"]
    assert {axes.panel(m) for m in members} == {""}


def test_an_embedding_that_a_section_gives_all_models_is_said() -> None:
    trained = ["rope", "nope"]
    members = [Member({"p.embedding": name}, "pi(factor=2)") for name in trained]
    axes = read_axes(members)
    assert [axes.label(m, "s") for m in members] == ["rope, pi(factor=2)", "nope, pi(factor=2)"]
    assert axes.varying == ("p.embedding",)
    assert axes.names["p.embedding"] == "p.embedding"
    assert axes.shared == ("embedding pi(factor=2)",)


def test_an_embedding_that_one_of_two_sections_gives_is_a_column() -> None:
    members = [
        Member({"p.embedding": name, "e.from": stage}, "yarn" if stage == "extend" else name)
        for name in ("rope", "nope")
        for stage in ("pretrain", "extend")
    ]
    axes = read_axes(members)
    assert [axes.names[path] for path in axes.varying] == ["p.embedding", "embedding", "from"]
    assert axes.values(members[1]) == ("rope", "yarn", "extend")
    assert len({(axes.label(m, "s"), axes.panel(m)) for m in members}) == len(members)


def test_options_that_axes_set_are_no_other_embedding() -> None:
    members = [
        Member({"p.embedding": name, "p.embedding.base": base}, f"{name}(base={base})")
        for name in ("rope", "fope")
        for base in (100, 200)
    ]
    assert read_axes(members).varying == ("p.embedding", "p.embedding.base")


def test_one_line_is_named_after_its_embedding_or_its_stage() -> None:
    assert read_axes([Member({}, "rope")]).label(Member({}, "rope"), "pretrain") == "rope"
    assert read_axes([Member()]).label(Member(), "pretrain") == "pretrain"


def test_checkpoints_are_named_after_what_is_in_them() -> None:
    members = [
        Member({"passkey.from": "/store/pretrain/a1/checkpoint"}, "rope"),
        Member({"passkey.from": "/store/pretrain/b2/checkpoint"}, "rope"),
        Member({"passkey.from": "hf:org/NAME@COMMIT"}, "llama3"),
    ]
    axes = read_axes(members)
    assert [axes.label(member, "s") for member in members] == [
        "rope (a1/checkpoint)",
        "rope (b2/checkpoint)",
        "llama3 (NAME@COMMIT)",
    ]


def test_zipped_embeddings_are_named_by_the_model_that_results() -> None:
    members = [
        Member({"a.embedding": "rope", "b.embedding": "yarn"}, "yarn"),
        Member({"a.embedding": "fope", "b.embedding": "fope-yarn"}, "fope-yarn"),
    ]
    axes = read_axes(members)
    assert [axes.label(m, "s") for m in members] == ["yarn", "fope-yarn"]


def test_crossed_embeddings_are_named_by_both() -> None:
    members = [
        Member({"a.embedding": first, "b.embedding": then}, then)
        for first in ("rope", "fope")
        for then in ("yarn", "ntk")
    ]
    labels = [read_axes(members).label(m, "s") for m in members]
    assert labels == ["rope, yarn", "rope, ntk", "fope, yarn", "fope, ntk"]


def test_an_axis_that_a_combination_lacks_is_a_dash() -> None:
    members = [Member({"p.embedding": "rope"}, "rope"), Member({"p.x": 1}, "fope")]
    assert read_axes(members).values(members[1]) == ("–", "1")


def test_options_are_left_out_only_where_nothing_is_confused() -> None:
    names = shorten_labels(["nope", "rope(base=1)", "rope(base=2)", "fope(base=1)"])
    assert list(names.values()) == ["nope", "rope(base=1)", "rope(base=2)", "fope"]
    names = shorten_labels(["a(x=1,y=2)", "a(x=1)", "a(x=1,y=3)", "b(x=1), c", "b(x=2), c"])
    assert list(names.values()) == ["a(y=2)", "a", "a(y=3)", "b(x=1), c", "b(x=2), c"]


@given(st.lists(st.from_regex(r"[ab]{1,2}(\([xy]=[12](,z=[12])?\))?(, c)?", fullmatch=True)))
def test_short_labels_stay_distinct(labels: list[str]) -> None:
    names = shorten_labels(labels)
    assert len(set(names.values())) == len(set(labels))


@pytest.mark.parametrize(
    ("unit", "value", "spread", "text"),
    [
        ("perplexity", 12.345, None, "12.35"),
        ("perplexity", 123.45, 6.789, "123.5 ± 6.8"),
        ("perplexity", 12345.6, None, "12,346"),
        ("perplexity", 1.5e9, None, "1.50e+09"),
        ("perplexity", float("inf"), None, "∞"),
        ("fraction", 0.9995, None, "1.000"),
        ("fraction", 0.5, 0.0123, "0.500 ± 0.012"),
        ("nats", float("nan"), None, "NaN"),
    ],
)
def test_numbers_are_written_at_a_fitting_precision(
    unit: Unit, value: float, spread: float | None, text: str
) -> None:
    metric = Metric(name="m", short_name="m", better=None, unit=unit)
    assert metric.format(value, spread) == text


PARTS = st.sampled_from(["a", "b", "base.py", "loop.py"])
PATHS = st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=8)


def test_files_of_one_name_are_told_apart() -> None:
    paths = ["fope_lab/tasks/base.py", "fope_lab/stages/base.py", "fope_lab/stages/metric.py"]
    endings = unique_endings([*paths, "pretrain"], "/")
    assert list(endings.values()) == ["tasks/base.py", "stages/base.py", "metric.py", "pretrain"]


@given(PATHS)
def test_no_two_files_have_one_name(paths: set[str]) -> None:
    names = unique_endings(paths, "/")
    assert len(set(names.values())) == len(paths)
    assert all(path == name or path.endswith(f"/{name}") for path, name in names.items())


BPE = {"train": "bpe", "vocabulary": 300, "corpus": "python-docs"}
ALIKE: dict[str, Any] = {"grid": {"pretrain.embedding": ["rope", "fope"]}}
DIFFERENT: dict[str, Any] = {"grid": {**ALIKE["grid"], "pretrain.tokenizer": ["byte", BPE]}}


def shown(folder: Path, changes: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The metrics of the tables and of the figures."""
    report = report_of(folder, changes=changes)
    tables, figures = report.table_groups, report.figure_groups
    return [g.metric.short_name for g in tables], [g.metric.short_name for g in figures]


@pytest.mark.parametrize(
    ("changes", "tables", "figures"),
    [
        (ALIKE, ["perplexity", "passkey", "loss"], None),
        (DIFFERENT, ["bits_per_byte", "perplexity", "passkey", "loss"], None),
        (
            {**ALIKE, "report": {"tables": ["bits_per_byte"]}},
            ["bits_per_byte"],
            ["bits_per_byte", "perplexity", "passkey", "loss"],
        ),
        (
            {**DIFFERENT, "report": {"figures": ["passkey"]}},
            ["bits_per_byte", "perplexity", "passkey", "loss"],
            ["passkey"],
        ),
    ],
)
def test_they_are_shown_on_request_and_where_tokenizers_differ(
    tmp_path: Path, changes: dict[str, Any], tables: list[str], figures: list[str] | None
) -> None:
    assert shown(tmp_path, changes) == (tables, tables if figures is None else figures)
