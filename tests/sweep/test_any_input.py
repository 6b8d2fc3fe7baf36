"""Whatever a sweep file holds, and however much it asks for, load_sweep returns a sweep or raises
SweepError, in seconds and in bounded memory."""

from __future__ import annotations

import copy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_files import BASE, PRETRAIN, PRETRAIN_LINE, changed, told, write

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


@settings(deadline=None, max_examples=50)
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


SECONDS = 10  # of this process's CPU: other work on the machine does not count
FILE = f"name: large\nstages:\n  p: {PRETRAIN_LINE}\n"
EVALUATION = "{kind: perplexity, from: p, corpus: c4, lengths: [32]}"


def numbers(count: int, first: int = 0) -> str:
    return f"[{', '.join(str(first + i) for i in range(count))}]"


HUGE = {
    "seeds": (
        FILE + f"seeds: {numbers(20_001)}",
        "4 seeds: makes 20,001 grid points with all seeds"
        " (allowed: at most 20,000, unless max_stages says more)",
    ),
    "grid": (
        FILE
        + f"grid:\n  p.embedding.base: {numbers(303)}\n  p.train.learning_rate: {numbers(330)}",
        "4 grid: makes 99,990 grid points with all seeds (allowed: at most 20,000",
    ),
    "more grid points than digits": (
        FILE + "grid:\n" + "".join(f"  p.a{i}: [1, 2]\n" for i in range(60)),
        "4 grid: makes over 10^15 grid points with all seeds",
    ),
    "stages": (
        FILE
        + "".join(f"  e{i}: {EVALUATION}\n" for i in range(9))
        + f"seeds: {numbers(2001)}\nmax_stages: 20_009",
        "2 stages: makes 20,010 stages with all axes and seeds"
        " (allowed: at most 20,009, unless max_stages says more)",
    ),
    "axes at many grid points": (
        FILE
        + f"seeds: {numbers(5000)}\ngrid:\n"
        + "".join(f"  p.a{i}: [1]\n" for i in range(1000)),
        "5 grid: makes 5,000 grid points with all seeds, each of 1,001 stages and axes",
    ),
    "a value in every second byte": (
        f"name: [{'1,' * 499_000}]",
        "- holds over 100,000 keys and values; no sweep needs so many",
    ),
    "nesting": ("name: " + "[" * 990_000, "1 is nested too deeply"),
    "repeated seeds": (FILE + f"seeds: [{'7, ' * 10_000}]", "4 seeds[1]: names 7 twice"),
    "claims": (
        FILE
        + f"  e: {EVALUATION}\ngrid:\n  p.embedding.base: {numbers(300, 500)}\nreport:\n  claims:\n"
        + "".join(f"    - 'perplexity@32: {i + 500} < {i + 501}'\n" for i in range(9000)),
        "8 report.claims: 9,000 claims about 600 stages"
        " (allowed: at most 3,333, unless max_stages says more)",
    ),
    "wrong exclusions": (
        FILE
        + f"grid:\n  p.train.tokens: {numbers(900, 2048)}\nexclude:\n"
        + "".join(f"- {{p.train.tokens: {i + 20_000}}}\n" for i in range(900)),
        "7 exclude[0].p.train.tokens: found 20000; did you mean '2100'? (allowed: 2048, 2049,",
    ),
}


@pytest.mark.parametrize("name", HUGE)
def test_it_is_refused_at_once(tmp_path: Path, name: str) -> None:
    text, expected = HUGE[name]
    assert len(text) < 1_000_000
    started = time.process_time()
    found = told(tmp_path, text)
    assert time.process_time() - started < SECONDS
    assert found[0].startswith(expected)


def test_a_large_grid_is_planned_at_once(tmp_path: Path) -> None:
    """A tenth of what is allowed by default, in a process of its own, whose memory can be told."""
    text = FILE + f"  e: {EVALUATION}\ngrid:\n"
    text += f"  p.train.learning_rate: [{', '.join(f'{i}e-6' for i in range(1, 26))}]\n"
    text += f"  p.embedding.base: {numbers(40, 500)}\n"
    path = write(tmp_path / "sweep.yaml", text)
    program = (
        "import resource, sys\nfrom fope_lab.sweep import load_sweep, plan\n"
        "print(len(plan(load_sweep(sys.argv[1])).states))\n"
        "usage = resource.getrusage(resource.RUSAGE_SELF)\n"
        "peak = open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]\n"
        "print(usage.ru_utime + usage.ru_stime, int(peak) / 1024)"  # ru_maxrss has the parent's
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, seconds, megabytes = map(float, done.stdout.split())
    assert count == 2002  # with the stages that prepare the data
    assert seconds < SECONDS
    assert megabytes < 200


def test_a_file_may_ask_for_more_stages(tmp_path: Path) -> None:
    few = changed(BASE, {"max_stages": 4})
    assert told(tmp_path, few) == [
        "3 stages: makes 5 stages with all axes and seeds"
        " (allowed: at most 4, unless max_stages says more)"
    ]
    assert load_sweep(write(tmp_path / "sweep.yaml", {**few, "max_stages": 5}))


def test_an_error_prints_its_first_problems(tmp_path: Path) -> None:
    """And of many names, the first."""
    text = FILE + "".join(f"  e{i}: {EVALUATION.replace('p,', 'q,', 1)}\n" for i in range(150))
    with pytest.raises(SweepError) as caught:
        load_sweep(write(tmp_path / "sweep.yaml", text))
    assert len(caught.value.problems) == 150
    lines = str(caught.value).splitlines()
    assert len(lines) == 101
    assert lines[-1] == "and 50 more problems"
    assert "e98, e99, … (51 more)" in lines[0]
