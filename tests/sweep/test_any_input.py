"""Whatever a sweep file holds, load_sweep returns a sweep or raises SweepError, nothing else."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_files import BASE, PRETRAIN, changed, write

from fope_lab.planning.estimate import estimate_plans
from fope_lab.sweep import Sweep, SweepError, load_sweep, plan

WORDS = """
    rope nope fope yarn c4 tiny pretrain passkey extend hf:x a#b . ./x ~ byte
    type task length corpus files factor base from kind tokens 5
"""
words = st.sampled_from([*WORDS.split(), "", "x" * 300])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(-3, 130)
    | st.floats()
    | words
    | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
RICH: dict[str, Any] = changed(
    BASE,
    {
        "stages.pretrain.embedding": {"type": "rotary", "transforms": ["clip_floor"], "base": 500},
        "stages.pretrain.data": {"length": 64, "mix": [{"corpus": "c4"}, {"task": "passkey"}]},
        "stages.other": {**PRETRAIN, "resources": {"cpus": 1}},
        "seeds": [0, 1],
        "grid": {"pretrain.embedding.base": [500, 600], "other.model": ["tiny", "mini"]},
        "zip": {"passkey.from": ["pretrain", "extend"], "extend.train.tokens": [4096, 8192]},
        "include": [],
        "exclude": [{"other.model": "mini", "pretrain.embedding.base": 600}],
    },
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in a value."""
    if isinstance(value, dict):
        return [path, *(p for key, item in value.items() for p in places(item, (*path, key)))]
    if isinstance(value, list):
        return [path, *(p for i, item in enumerate(value) for p in places(item, (*path, i)))]
    return [path]


@st.composite
def altered(draw: st.DrawFn) -> Any:
    """RICH with one to three values exchanged, removed or added."""
    content = copy.deepcopy(RICH)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from([p for p in places(content) if p]))
        target = content
        for part in way:
            target = target[part]
        action = draw(st.sampled_from(["exchange", "remove", "add"]))
        if action == "exchange":
            target[last] = draw(values)
        elif action == "remove":
            del target[last]
        elif isinstance(target, dict):
            target[draw(words) or "empty"] = draw(values)
        if not content:
            break
    return content


@settings(deadline=None, max_examples=75)
@given(altered())
def test_altered_sweeps(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    folder = tmp_path_factory.getbasetemp() / "altered"
    check(write(folder / "sweep.yaml", yaml.safe_dump(content, allow_unicode=True).encode()))


@settings(deadline=None, max_examples=60)
@given(
    st.text(
        alphabet=st.sampled_from("ab:-{}[]#&*!|>'\"%@`,? \n\t\\1.eE~<=\x00é\u2028"), max_size=40
    )
)
def test_any_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "text"
    check(write(folder / "sweep.yaml", text))


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=60))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    check(write(tmp_path_factory.getbasetemp() / "bytes" / "sweep.yaml", data))


def check(path: Path) -> None:
    try:
        sweep = load_sweep(path)
    except SweepError as error:
        problems = error.problems
    else:
        assert isinstance(sweep, Sweep)
        estimate_plans([plan(sweep)]).as_json()
        return
    assert problems
    for problem in problems:
        assert problem.message
        assert "\n" not in problem.message
