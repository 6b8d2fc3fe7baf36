"""RULER's prompts, read back: what is hidden, what is asked, and what follows from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fope_lab.data.problems import DataError
from fope_lab.data.seeding import random_words
from fope_lab.data.tasks.ruler import distinct
from fope_lab.data.tasks.ruler_tasks import (
    EnglishKeyValue,
    KeyValueTask,
    RulerTask,
    VariableTrackingTask,
    listed,
    spell,
)
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer, as_tokenizer

BYTE = ByteTokenizer()
SENTENCES = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
)


def looked_up(text: str) -> str:
    """The answer of a key-value prompt (English or symbolic) by a dictionary of its statements."""
    if text.startswith(("A special", "Some special")):
        pairs = re.findall(r"\nOne of the special magic numbers for (\S+) is: (\d+)\.\n", text)
        _, asked, repeated, answer = re.fullmatch(
            r"(.*)\nWhat (?:is|are all) the special magic numbers? for (.*) mentioned in the "
            r"provided text\? The special magic numbers? for (.*) mentioned in the provided text "
            r"(?:is|are)(.*)",
            text,
            re.DOTALL,
        ).groups()  # type: ignore[union-attr]
        assert asked == repeated
        expected = listed([dict(pairs)[key] for key in re.split(r",? and |, ", asked)])
        assert answer == f" {expected}"
    else:
        blocks = re.findall(r"#([A-Z]+)(\d+)", text)
        pairs, (asked, answer) = blocks[:-1], blocks[-1]
        assert answer == "".join(dict(pairs)[key] for key in asked)
    assert len(dict(pairs)) == len(pairs)
    assert len({value for _, value in pairs}) == len(pairs)
    return answer


def interpreted(text: str) -> str:
    """The answer of a variable-tracking prompt, by running its assignments one by one."""
    if text.startswith("Memorize"):
        text = text[text.rindex("Memorize") :]
        lines = re.findall(r"\nVAR ([A-Z]{5}) = (?:VAR )?([A-Z]{5}|\d{5})\n", text)
        value = re.search(r"assigned the value (\d{5})", text)[1]  # type: ignore[index]
        separator, start = " ", " "
        answer = text[text.index("they are:") + len("they are:") :]
        stated = re.search(r"text above, (\d+) variables", text)[1]  # type: ignore[index]
        assert int(stated) == len(answer.split())
    else:
        *blocks, question = re.findall(r"#(\w)([A-Z]+)", text)
        lines = [(variable, source) for source, variable in blocks]
        value, answer = question
        separator = start = ""
    held: dict[str, str] = {}
    for variable, source in lines:
        assert variable not in held
        held[variable] = held[source] if source.isalpha() else source
    found = [variable for variable, holds in held.items() if holds == value]
    assert answer == start + separator.join(found)
    return answer


TASKS: list[tuple[RulerTask, int, Callable[[str], str]]] = [
    (KeyValueTask(), 50, looked_up),
    (KeyValueTask(keys=9, digits=1), 40, looked_up),
    (KeyValueTask(keys=6, queries=3, digits=2), 45, looked_up),
    (KeyValueTask(form="english"), 700, looked_up),
    (KeyValueTask(form="english", queries=2, keys=3, digits=5), 650, looked_up),
    (VariableTrackingTask(), 25, interpreted),
    (VariableTrackingTask(chains=3, hops=2), 40, interpreted),
    (VariableTrackingTask(form="english", chains=2, hops=3), 1500, interpreted),
]
names = [f"{task.task}-{task.form}-{i}" for i, (task, _, _) in enumerate(TASKS)]
every_task = pytest.mark.parametrize(("task", "least", "solve"), TASKS, ids=names)


@every_task
def test_prompts_are_of_exact_length_and_their_answers_follow_from_them(
    task: RulerTask, least: int, solve: Callable[[str], str]
) -> None:
    prompts = task.prompts(BYTE)

    @settings(max_examples=25)
    @given(st.integers(least, least + 300), st.integers(0, 10**6))
    def check(length: int, trial: int) -> None:
        prompt = prompts.trial(length, trial)
        assert prompt.input_ids.shape == (length,)
        assert prompt.input_ids.dtype == np.int64
        assert 0 <= prompt.depth <= 1
        text = BYTE.decode(prompt.input_ids.tolist())
        assert BYTE.decode(prompt.answer_ids.tolist()) == solve(text)

    check()


@every_task
def test_trials_are_the_same_for_every_model_and_differ_from_each_other(
    task: RulerTask, least: int, solve: Callable[[str], str]
) -> None:
    length = least + 60
    one, again = (task.prompts(ByteTokenizer()) for _ in range(2))
    trials = [one.trial(length, i).input_ids.tolist() for i in range(10)]
    assert [again.trial(length, i).input_ids.tolist() for i in range(9, -1, -1)] == trials[::-1]
    assert len(set(map(tuple, trials))) == 10


def test_the_depth_is_that_of_the_statement_the_answer_begins_with() -> None:
    for trial in range(50):
        prompt = KeyValueTask(digits=2, queries=2).prompts(BYTE).trial(100, trial)
        text = BYTE.decode(prompt.input_ids.tolist())
        sought = text[-6]
        before = len(re.sub("#[A-Z][0-9]+", "", text[: text.index(f"#{sought}")]))
        assert prompt.depth == before / (100 - 4 * 4 - 7)
        prompt = VariableTrackingTask(chains=3, hops=1).prompts(BYTE).trial(100, trial)
        text = BYTE.decode(prompt.input_ids.tolist())
        before = len(re.sub("#..", "", text[: text.index(text[-4:-1])]))
        assert prompt.depth == before / (100 - 6 * 3 - 4)


def test_statements_lie_everywhere_and_are_asked_for_alike() -> None:
    prompts = KeyValueTask(digits=1, keys=4).prompts(BYTE)
    trials = [prompts.trial(1000, i) for i in range(1500)]
    texts = [BYTE.decode(trial.input_ids.tolist()) for trial in trials]
    order = [re.findall("#([A-Z])", text)[:4].index(text[-2]) for text in texts]
    assert stats.chisquare(np.bincount(order, minlength=4)).pvalue > 0.001
    letters = [ord(text[-2]) - ord("A") for text in texts]
    assert stats.chisquare(np.bincount(letters, minlength=26)).pvalue > 0.001
    depths = [trial.depth for trial in trials]
    assert stats.kstest(depths, "uniform").pvalue > 0.001


def test_chains_are_mixed_in_every_way_alike() -> None:
    prompts = VariableTrackingTask(chains=2, hops=1).prompts(BYTE)
    found: dict[str, int] = {}
    for trial in range(1800):
        text = BYTE.decode(prompts.trial(40, trial).input_ids.tolist())
        chains: dict[str, str] = {}
        for source, variable in re.findall("#(.)([A-Z])", text)[:-1]:
            chains[variable] = chains.get(source) or "ab"[len(set(chains.values()))]
        found["".join(chains.values())] = found.get("".join(chains.values()), 0) + 1
    assert sorted(found) == ["aabb", "abab", "abba"]
    assert stats.chisquare(list(found.values())).pvalue > 0.001


@given(st.integers(1, 40), st.integers(0, 60), st.integers(0, 10**6))
def test_distinct_numbers_are_distinct_and_in_range(count: int, more: int, row: int) -> None:
    [words] = random_words(("distinct",), row, 1, 2 * count)
    found = distinct(words, count + more)
    assert len(set(found)) == len(found) == count
    assert all(0 <= number < count + more for number in found)


def test_every_order_of_distinct_numbers_is_as_likely() -> None:
    draws = [tuple(distinct(w, 4)) for w in random_words(("distinct",), 0, 6000, 4)]
    counts = list({pair: draws.count(pair) for pair in set(draws)}.values())
    assert len(counts) == 12
    assert stats.chisquare(counts).pvalue > 0.001


@settings(max_examples=30)
@given(st.integers(60, 150), st.integers(0, 5), st.integers(0, 10**9), st.integers(1, 6))
def test_training_rows_ask_several_times_and_have_a_loss_on_the_answers(
    length: int, seed: int, first: int, most: int
) -> None:
    for task in (
        KeyValueTask(digits=2, questions=most),
        VariableTrackingTask(chains=2, hops=2, questions=most),
    ):
        rows = task.rows(BYTE, length, seed)
        found = rows.rows(first, 3)
        assert found.ids.shape == (3, length + 1)
        assert rows.rows(first + 2, 1).ids[0].tolist() == found.ids[2].tolist()
        for ids, labels in zip(found.ids, found.labels, strict=True):
            text = BYTE.decode(ids.tolist())
            blocks = [m.span() for m in re.finditer(r"#\w+?(?=[a-h#]|$)", text)]
            statements = 4 if isinstance(task, KeyValueTask) else 6
            asked = blocks[statements:]
            assert 1 <= len(asked) <= most
            assert asked[-1][1] == length + 1
            expected = {i for start, end in asked for i in range(start + 2, end)}
            assert {i for i, label in enumerate(labels) if label >= 0} == expected
            assert all(labels[i] == ids[i] for i in expected)
            for start, end in asked:  # each question is one that a prompt could have ended with
                solve = looked_up if isinstance(task, KeyValueTask) else interpreted
                solve(text[: asked[0][0]] + text[start:end])


def test_english_training_rows_are_prompts() -> None:
    rows = KeyValueTask(form="english").rows(BYTE, 700, 0).rows(5, 3)
    for ids, labels in zip(rows.ids, rows.labels, strict=True):
        assert BYTE.decode(ids[labels >= 0].tolist()) == looked_up(BYTE.decode(ids.tolist()))


def test_rulers_words_are_its_own() -> None:
    """One query and several: RULER's template says `A … is` and `Some … are all`."""
    one = BYTE.decode(KeyValueTask(form="english").prompts(BYTE).trial(800, 0).input_ids.tolist())
    assert one.startswith(
        "A special magic number is hidden within the following text. Make sure to memorize it. "
        "I will quiz you about the number afterwards.\nThe grass is green."
    )
    key = re.search(r"magic number for (\S+) mentioned", one)[1]  # type: ignore[index]
    assert f"One of the special magic numbers for {key} is: " in one
    assert re.search(
        rf"\nWhat is the special magic number for {key} mentioned in the provided text\? The "
        rf"special magic number for {key} mentioned in the provided text is \d{{7}}$",
        one,
    )
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b, and c"
    assert EnglishKeyValue.names == len(set(EnglishKeyValue.adjectives)) * len(
        set(EnglishKeyValue.nouns)
    )
    tracking = VariableTrackingTask(form="english").prompts(BYTE).trial(1600, 0)
    text = BYTE.decode(tracking.input_ids.tolist())
    example = text[: text.rindex("Memorize")]
    assert example.count("The grass is green.") == 5
    values = re.findall(r"\nVAR ([A-Z]{3}) = (?:VAR )?(\w+)", example)
    assert [given for _, given in values] == ["12345", *(name for name, _ in values[:-1])]
    assert example.endswith(f"they are: {' '.join(name for name, _ in values)}\n\n")
    assert spell(26**5 - 1, 5) == "ZZZZZ"
    assert spell(27, 3) == "ABB"


def test_real_text_is_a_haystack() -> None:
    tokens = np.array(BYTE.encode("0123456789" * 300))
    prompt = KeyValueTask(form="english").prompts(BYTE, tokens).trial(900, 3)
    text = BYTE.decode(prompt.input_ids.tolist())
    looked_up(text)
    assert "grass" not in text


def test_other_tokenizers_give_exact_lengths_too(make_bpe: Callable[..., Any]) -> None:
    bpe = as_tokenizer(make_bpe(80, bos=True))
    for task, least, solve in TASKS:
        for trial in range(3):
            prompt = task.prompts(bpe).trial(least + 100, trial)
            assert prompt.input_ids.shape == (least + 100,)
            text = bpe.decode(prompt.input_ids.tolist()).removeprefix("<s>")
            assert bpe.decode(prompt.answer_ids.tolist()) == solve(text)


def test_what_does_not_fit_is_told() -> None:
    message = "a key-value prompt with 4 statements needs at least 45 tokens, but length is 44"
    with pytest.raises(DataError, match=message):
        KeyValueTask().check(BYTE, 44)
    KeyValueTask().check(BYTE, 45)
    with pytest.raises(DataError, match="needs at least 45 tokens"):
        KeyValueTask().rows(BYTE, 43, 0)
    with pytest.raises(DataError, match="queries: found 5, needs at most 4"):
        KeyValueTask(queries=5)
    with pytest.raises(DataError, match="keys: found 27, needs at most 26 in the symbolic form"):
        KeyValueTask(keys=27)
    with pytest.raises(DataError, match="needs no more than values of 1 digits"):
        KeyValueTask(keys=10, digits=1)
    with pytest.raises(DataError, match="hops: found 9, needs at most 7"):
        VariableTrackingTask(chains=3, hops=9)
    with pytest.raises(DataError, match="chains: found 11, needs at most 10"):
        VariableTrackingTask(chains=11, hops=1)
    with pytest.raises(DataError, match="English prompts ask once"):
        VariableTrackingTask(form="english", questions=2)


@pytest.mark.parametrize("queries", [1, 3])
def test_a_length_is_checked_against_the_longest_names(queries: int) -> None:
    task = KeyValueTask(form="english", queries=queries)
    prompts = task.prompts(BYTE)
    assert isinstance(prompts, EnglishKeyValue)
    content = prompts.longest()
    blocks = [*content.statements, *content.questions]
    least = len(prompts.head) + sum(len(block.ids) for block in blocks)
    assert len(prompts.trial(least - 1, 0).input_ids) == least - 1  # this one has shorter names
    with pytest.raises(DataError, match=f"needs at least {least} tokens"):
        task.check(BYTE, least - 1)
    with pytest.raises(DataError, match=f"needs at least {least} tokens"):
        task.rows(BYTE, least - 2, seed=0)
    task.check(BYTE, least)
    names = [f"{one}-{two}" for one in prompts.adjectives for two in prompts.nouns]
    names = sorted(names, key=len)[-4:]
    asked = listed(names[-queries:])
    text = prompts.tasks[queries > 1] + prompts.questions[queries > 1].format(query=asked)
    text += " " + listed(["1234567"] * queries)
    text += "".join(prompts.needle.format(key=name, value="1234567") for name in names)
    assert least == len(text)


def test_the_level_of_guessing() -> None:
    assert KeyValueTask().prompts(BYTE).chance == 1 / 4
    assert KeyValueTask(queries=2).prompts(BYTE).chance == 1 / 12
    assert VariableTrackingTask(chains=2, hops=1).prompts(BYTE).chance == 1 / 6
    assert VariableTrackingTask().prompts(BYTE).chance == 1, "all variables, as they come"
    assert KeyValueTask(keys=3).canonical() == {"task": "key-value", "keys": 3}
