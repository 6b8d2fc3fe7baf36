"""A command names stages by their section, their label or their key, and errors say what exists."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fope_lab.config.problems import SweepError
from fope_lab.sweep.stage_filter import find_stage, find_stages


@dataclass(frozen=True)
class Named:
    key: str
    section: str
    label: str


ROPE = Named("aaaaaa11" + "0" * 24, "pretrain", "pretrain[embedding=rope]")
NOPE = Named("aaaaaa22" + "0" * 24, "pretrain", "pretrain[embedding=nope]")
PASSKEY = Named("bbbbbb33" + "0" * 24, "passkey", "passkey[embedding=rope]")
STAGES = [ROPE, NOPE, PASSKEY]


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("pretrain", [ROPE, NOPE]),
        ("pretrain[embedding=nope]", [NOPE]),
        (NOPE.key, [NOPE]),
        ("aaaaaa2", [NOPE]),
        ("bbbbbb", [PASSKEY]),
    ],
)
def test_a_section_a_label_and_a_key(name: str, stages: list[Named]) -> None:
    assert find_stages(STAGES, [name]) == stages


def test_a_label_without_some_of_its_fields_means_all_that_have_the_others() -> None:
    labels = ["a[x=1,y=1]", "a[x=1,y=2]", "a[x=2,y=1]", "a[x=1]", "b[x=1,y=1]", "s[a[x=2,y=1]]"]
    stages = [Named(f"{i:032x}", name[0], name) for i, name in enumerate(labels)]
    assert find_stages(stages, ["a[y=1]"]) == [stages[0], stages[2]]
    assert find_stages(stages, ["a[y=2,x=1]"]) == [stages[1]]
    assert find_stages(stages, ["a[x=1]"]) == [stages[3]]  # this one's whole label
    assert find_stages(stages, ["s[a[x=2]]"]) == [stages[5]]
    with pytest.raises(SweepError, match=r"'a.y=1.' means 2 stages: a.x=1,y=1. "):
        find_stage(stages, "a[y=1]")
    for wrong in ("a[y=3]", "a[y]", "a[]", "a[z=1,y=1]"):
        with pytest.raises(SweepError, match="unknown stage or key"):
            find_stages(stages, [wrong])


def test_several_names_give_each_stage_once_in_the_order_of_the_sweep() -> None:
    assert find_stages(STAGES, ["passkey", "pretrain", "aaaaaa11"]) == STAGES
    assert find_stages([*STAGES, ROPE], ["pretrain"]) == [ROPE, NOPE]


def test_a_section_that_looks_like_a_key_is_a_section() -> None:
    odd = Named("c" * 32, "bbbbbb33", "bbbbbb33")
    assert find_stages([*STAGES, odd], ["bbbbbb33"]) == [odd]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "pretrian",
            "--only: unknown stage or key 'pretrian'; did you mean 'pretrain'?"
            " (allowed: pretrain, passkey)",
        ),
        ("pretrain[embedding=rpoe]", "; did you mean 'pretrain[embedding=rope]'?"),
        ("bbbbb", "--only: unknown stage or key 'bbbbb' (allowed: pretrain, passkey)"),
        ("", "--only: unknown stage or key ''"),
        (
            "aaaaaa",
            "--only: 'aaaaaa' means 2 stages: pretrain[embedding=rope] (aaaaaa11),"
            " pretrain[embedding=nope] (aaaaaa22), needs one label or key",
        ),
    ],
)
def test_a_name_that_means_no_stage_or_several_keys(name: str, message: str) -> None:
    with pytest.raises(SweepError) as caught:
        find_stages(STAGES, [name], ("--only",))
    assert message in str(caught.value)


def test_a_stage_that_several_sweeps_name_is_found_by_each_name() -> None:
    other = Named(ROPE.key, "base", "base[embedding=rope]")
    for name in ("base", "pretrain[embedding=rope]", "aaaaaa11"):
        assert find_stages([*STAGES, other], [name]) == [ROPE]


def test_a_stage_without_a_name_is_found_by_its_key_alone() -> None:
    nameless = Named("dddddd44" + "0" * 24, "", "")
    assert find_stage([*STAGES, nameless], "dddddd44") == nameless
    with pytest.raises(SweepError, match=r"unknown stage or key '' \(allowed: pretrain, passkey\)"):
        find_stage([*STAGES, nameless], "")


def test_every_wrong_name_is_told() -> None:
    with pytest.raises(SweepError) as caught:
        find_stages(STAGES, ["passkey", "x1", "x2"])
    assert len(caught.value.problems) == 2


def test_one_stage() -> None:
    assert find_stage(STAGES, "passkey") == PASSKEY
    with pytest.raises(SweepError, match=r"'pretrain' means 2 stages: .*, needs one label or key"):
        find_stage(STAGES, "pretrain", ("STAGE",))
