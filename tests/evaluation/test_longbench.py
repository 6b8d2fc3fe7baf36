"""LongBench-E: a model that knows is right, prompts are cut and counted, and what a stage logs."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from answering import BYTE, Told
from hypothesis import given
from hypothesis import strategies as st
from measured import measured
from sections import read_section

from fope_lab.data.benchmarks.longbench import BUCKETS, TASKS, LongBenchQuestion
from fope_lab.data.problems import DataError
from fope_lab.evaluation.longbench import LongBench, first_of_buckets
from fope_lab.evaluation.longbench.metrics import qa_f1, rouge_l, rouge_l_of_words
from fope_lab.evaluation.run import run
from fope_lab.evaluation.scoring.groups import Group, summaries_by_group
from fope_lab.evaluation.scoring.scored_answers import ScoredQuestion
from fope_lab.store import Store

CLASSES = ("Date", "Food", "City")
ENDS = {"gov_report": "\n\nSummary:", "multi_news": "\n\nSummary:"}


def longbench(
    model: Told,
    tokenizer: Any,
    task: str,
    questions: list[LongBenchQuestion],
    context_length: int,
    progress: Callable[[int], None] = lambda prompts: None,
    **options: Any,
) -> list[ScoredQuestion]:
    stage = LongBench(from_="m", **options)
    return stage.answered(model, tokenizer, task, questions, context_length, progress)


def example(index: int, words: int = 100, filler: int = 0) -> LongBenchQuestion:
    """A question whose context holds the answer, under the question's number."""
    answer = CLASSES[index % 3]
    return LongBenchQuestion(
        input=f"#{index}?",
        context=f"[{index}={answer}]" + "".join(chr(97 + i % 23) for i in range(filler)),
        answers=(answer, "something else"),
        words=words,
        classes=CLASSES,
    )


def row(one: LongBenchQuestion) -> str:
    fields = {"length": one.words, "dataset": "x", "language": "en", "_id": "1"}
    lists = {"answers": list(one.answers), "all_classes": list(one.classes)}
    return json.dumps({"input": one.input, "context": one.context, **lists, **fields}) + "\n"


def look_up(text: str) -> str:
    return text.partition("=")[2].partition("]")[0]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("rouge", ["rouge-score", "rouge"])
def test_a_model_that_finds_the_answer_has_full_marks(task: str, rouge: str) -> None:
    examples = [example(index, filler=index % 2) for index in range(5)]
    done: list[int] = []
    found = longbench(
        Told(look_up),
        BYTE,
        task,
        examples,
        context_length=2000,
        rouge=rouge,
        progress=done.append,
    )
    for one in found:
        assert one.scores == pytest.approx((100,), abs=1e-5)
        assert one.asked[0][1] == 0
    assert [one.answers[0].text for one in found] == [look_up(e.context) for e in examples]
    assert done[-1] == 5


@pytest.mark.parametrize("task", TASKS)
def test_a_prompt_is_word_for_word_the_published_one(task: str) -> None:
    seen: list[str] = []

    def say(text: str) -> str:
        seen.append(text)
        return "x"

    longbench(Told(say), BYTE, task, [example(1)], context_length=2000)
    expected = TASKS[task].prompt.replace("{context}", "[1=Food]").replace("{input}", "#1?")
    assert seen == [expected]
    assert expected.endswith(ENDS.get(task, "#1?"))


def test_of_few_shot_answers_the_first_line_counts() -> None:
    def scores(task: str, text: str) -> float:
        [one] = longbench(Told(lambda prompt: text), BYTE, task, [example(0)], context_length=2000)
        return one.scores[0]

    assert scores("trec", "\n\nDate\nFood City") == 100
    assert scores("trec", "Date Food\nCity") == 50
    assert scores("triviaqa", "Date\nFood") == 100
    assert scores("triviaqa", "Date Food") == pytest.approx(100 * qa_f1("Date Food", "Date"))
    assert scores("multi_news", "Date\nFood") == pytest.approx(100 * rouge_l("Date Food", "Date"))


def test_samsum_ends_with_its_line_and_says_something() -> None:
    def answer(text: str) -> Any:
        model = Told(lambda prompt: text)
        [one] = longbench(model, BYTE, "samsum", [example(0)], context_length=2000)
        return one.answers[0]

    assert (answer("Date\nFood").text, answer("Date\nFood").tokens) == ("Date", 5)
    assert answer("\nDate").tokens > 1, "a newline is no beginning"


def test_rouge_is_the_one_that_is_asked_for() -> None:
    text = "Date, date and DATE"
    one = dataclasses.replace(example(0), answers=("a Date and a date",))
    for rouge, metric in (("rouge-score", rouge_l), ("rouge", rouge_l_of_words)):
        [found] = longbench(
            Told(lambda prompt: text), BYTE, "gov_report", [one], context_length=2000, rouge=rouge
        )
        assert found.scores == (100 * metric(text, one.answers[0]),)
    assert rouge_l(text, one.answers[0]) != rouge_l_of_words(text, one.answers[0])


def test_a_long_prompt_loses_its_middle_and_says_so() -> None:
    seen: list[str] = []

    def say(text: str) -> str:
        seen.append(text)
        return "Food"

    examples = [example(1, filler=1000), example(1)]
    short, long = longbench(Told(say), BYTE, "trec", examples[::-1], context_length=364)
    whole = TASKS["trec"].prompt.format(context=examples[0].context, input=examples[0].input)
    assert sorted(map(len, seen))[-1] == 364 - 64
    assert whole[:150] + whole[-150:] in seen
    assert long.asked == ((300, len(whole) - 300),)
    assert short.asked[0][1] == 0
    with pytest.raises(DataError, match="context_length: found 64, needs more than the 64 tokens"):
        longbench(Told(say), BYTE, "trec", examples, context_length=64)


def test_only_what_is_no_few_shot_task_is_put_in_a_chat() -> None:
    for task, about in TASKS.items():
        seen: list[str] = []

        def say(text: str, seen: list[str] = seen) -> str:
            seen.append(text)
            return "x"

        longbench(Told(say), BYTE, task, [example(1)], context_length=2000, format="llama2")
        assert seen[0].startswith("[INST]") == (not about.few_shot)


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=30), st.integers(1, 5))
def test_every_question_is_in_its_bucket(lengths: list[int], limit: int) -> None:
    examples = [example(index, words) for index, words in enumerate(lengths)]
    for one in examples:
        upper = 4000 if one.words < 4000 else 8000 if one.words < 8000 else 16_000
        assert one.bucket.step == upper
    kept = first_of_buckets(examples, limit)
    for bucket in BUCKETS:
        inside = [one for one in examples if one.bucket == bucket]
        assert [one for one in kept if one.bucket == bucket] == inside[:limit]
    assert first_of_buckets(examples, None) == examples


def test_a_bucket_has_the_mean_of_its_questions_and_their_error() -> None:
    examples = [example(0, words) for words in (3999, 0, 4000, 8000, 12)]
    right = iter([True, False, True, True, True])
    model = Told(lambda text: "Date" if next(right) else "Food")
    answered = longbench(model, BYTE, "trec", examples, context_length=2000, batch_tokens=1)
    groups = [Group(one.bucket.name, one.bucket.step) for one in examples]
    found = {group.name: one for group, one in summaries_by_group(groups, answered).items()}
    assert {name: one["questions"] for name, one in found.items()} == {
        "0-4k": 3,
        "4-8k": 1,
        "8k+": 1,
    }
    assert found["0-4k"]["score"] == pytest.approx(200 / 3)
    assert found["0-4k"]["stderr"] == pytest.approx(100 * ((2 / 3) * (1 / 3) / 2) ** 0.5)
    assert (found["8k+"]["score"], found["8k+"]["stderr"]) == (100, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in LongBench's format, as its data.zip has it."""
    path = tmp_path / "longbench" / "data"
    path.mkdir(parents=True)
    for task in TASKS:
        lengths = (10, 20, 5000) if task == "trec" else (10, 20, 5000, 9000)
        lines = [row(example(index, words)) for index, words in enumerate(lengths)]
        (path / f"{task}_e.jsonl").write_text("".join(lines))
    return path.parent


def test_a_stage_logs_every_bucket_and_leaves_all_answers(
    parents: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    section = {"kind": "longbench", "from": "m", "dataset": str(folder), "context_length": 400}
    stage = read_section(LongBench, {**section, "tasks": ["trec", "triviaqa"], "limit": 1})
    stage_folder = Store(tmp_path / "store").folder("longbench", "key")
    with stage_folder.begin("test", {}) as attempt:
        attempt.finish(run(pickle.loads(pickle.dumps(stage)), attempt.writer, parents))
    rows = {
        (name, row.step): value for row in stage_folder.rows() for name, value in row.values.items()
    }
    names = {"trec": (4000, 8000), "triviaqa": (4000, 8000, 16_000), "average": (4000, 8000)}
    assert rows == {  # the model is untrained
        (f"longbench_{name}_by_words", step): 0.0 for name, steps in names.items() for step in steps
    }
    result = stage_folder.result()
    assert result is not None
    assert {name for name, _ in measured(result)} == {one.name for one in stage.metrics()}
    assert result["recorded"]["context_length"] == 400
    assert set(result["recorded"]["contents"]) == {"trec_e.jsonl", "triviaqa_e.jsonl"}
    trec = result["recorded"]["tasks"]["trec"]
    assert (trec["max_new_tokens"], trec["format"]) == (64, "plain")
    assert trec["buckets"]["0-4k"]["questions"] == 1
    assert [(one["x"], one["value"]) for one in result["metrics"] if "average" in one["name"]] == [
        (4000, 0),
        (8000, 0),
    ]
    checkpoint = stage_folder.checkpoint()
    assert checkpoint is not None
    lines = (checkpoint.path / "answers.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in lines]
    assert [one["task"] for one in answers] == ["trec"] * 2 + ["triviaqa"] * 3
    assert [one["words"] for one in answers] == [10, 5000, 10, 5000, 9000]
    assert answers[0]["prompts"][0]["left_out"] == 0
    progress = stage_folder.progress()
    assert progress is not None
    assert progress["step"] == progress["total"] == 5


def test_the_context_is_the_models_own_by_default(
    parents: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    stage = LongBench(from_="m", dataset=str(folder), tasks=("triviaqa",))
    with (
        Store(tmp_path / "store").folder("longbench", "key").begin("test", {}) as attempt,
        pytest.raises(DataError, match="found 32, needs more than the 32 tokens"),
    ):
        run(stage, attempt.writer, parents)


def test_a_file_that_changed_since_it_was_planned_is_an_error(
    parents: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    stage = LongBench(from_="m", dataset=str(folder), context_length=600)
    planned = stage.key_replacements()
    sent = pickle.loads(pickle.dumps(stage))
    path = folder / "data" / "samsum_e.jsonl"
    path.write_text(path.read_text().replace("Date", "date"))
    with (
        Store(tmp_path / "store").folder("longbench", "key").begin("test", {}) as attempt,
        pytest.raises(DataError, match=r"samsum_e\.jsonl holds something else here than"),
    ):
        run(sent, attempt.writer, parents)
    anew = LongBench(from_="m", dataset=str(folder), context_length=600)
    changed = {
        name for name in planned["dataset"] if planned["dataset"][name] != anew.contents[name]
    }
    assert changed == {"samsum_e.jsonl"}
