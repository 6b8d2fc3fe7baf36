"""L-Eval: a model that knows is always right, prompts as published, what is cut and counted."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from answering import BYTE, Told
from hypothesis import given
from hypothesis import strategies as st
from measured import measured
from sections import read_section

from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import as_tokenizer
from fope_lab.evaluation.context import run
from fope_lab.evaluation.scoring.generating import Answer
from fope_lab.papers.resonance.leval import (
    LEval,
    Prompt,
    PromptParts,
    ScoredQuestion,
    average,
    fit_document,
    summary,
)
from fope_lab.papers.resonance.leval_tasks import TASKS, LEvalQuestion
from fope_lab.statistics.intervals import mean_and_error
from fope_lab.store.root import Store

ANSWERS = {
    "coursera": ("AC", "AC"),
    "gsm100": ("18", "He has 3 + 15. The answer is 18."),
    "quality": ("B", "B"),
    "tpo": ("D", "D. because"),
    "codeU": ("[1 2]", "so the final output will be [1, 2]"),
    "sci_fi": ("True [fact: False]", "True"),
}
"""For each task a right answer, and what a model writes that finds it."""
QUESTION = "Is it so? Answer this question based on the world described in the document."
ONE = ScoredQuestion(
    (Prompt(np.zeros(10, int), 0), Prompt(np.zeros(7, int), 3)),
    (Answer("yes", 4, True), Answer(" ", 9, False)),
    (100.0, 0.0),
)
OTHER = ScoredQuestion((Prompt(np.zeros(12, int), 5),), (Answer("no", 2, True),), (50.0,))
ASKED = PromptParts("Why?", instructions="Be short.", lead="\nAnswer:")
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
USER_ONLY = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ message['content'] }}"
    "{% endif %}{% endfor %}"
)


def leval(
    model: Told,
    tokenizer: Any,
    task: str,
    questions: list[LEvalQuestion],
    context_length: int,
    progress: Callable[[int], None] = lambda prompts: None,
    **options: Any,
) -> list[ScoredQuestion]:
    stage = LEval(from_="m", **options)
    return stage.answered(model, tokenizer, task, questions, context_length, progress=progress)


def question(task: str, document: str = "[key]") -> LEvalQuestion:
    return LEvalQuestion(document, QUESTION, ANSWERS[task][0])


def knows(task: str) -> Callable[[str], str]:
    def say(text: str) -> str:
        if "[key]" in text:
            return ANSWERS[task][1]
        return "false, it is not" if "real-world" in text else "I can't see it"

    return say


@pytest.mark.parametrize("task", TASKS)
def test_a_model_that_finds_the_answer_has_full_marks(task: str) -> None:
    examples = [question(task), question(task, "nothing"), question(task)]
    done: list[int] = []
    found = leval(
        Told(knows(task)), BYTE, task, examples, context_length=2000, progress=done.append
    )
    each = 2 if task == "sci_fi" else 1
    right = (100.0,) * each
    wrong = {"coursera": (25.0,), "sci_fi": (0.0, 100.0)}.get(task, (0.0,))
    assert [one.scores for one in found] == [right, wrong, right]
    assert all(prompt.left_out == 0 for one in found for prompt in one.asked)
    assert done[-1] == 3 * each


@pytest.mark.parametrize("task", TASKS)
def test_a_prompt_is_the_published_one(task: str) -> None:
    def prompts(format: str) -> list[str]:
        seen: list[str] = []

        def say(text: str) -> str:
            seen.append(text)
            return "A"

        leval(Told(say), BYTE, task, [question(task, "{x}")], context_length=2000, format=format)
        return sorted(seen, key="real-world".__contains__)

    instructions = TASKS[task].instructions
    exam = (
        "Document is as follows. {x} \nQuestion: " + QUESTION + ".  Please directly give answer "
        "without any additonal output or explanation "
    )
    continued = "{x}\n\n" + QUESTION
    is_exam = task in ("coursera", "quality", "tpo", "sci_fi")
    asked = exam if is_exam else continued
    closing = "" if task in ("gsm100", "codeU") else "[/INST]"
    lead = "\nAnswer:" * is_exam
    fact = [
        "Is it so? Answer this question based on the real-world knowledge and facts up until your "
        "last training\nAnswer:"
    ] * (task == "sci_fi")
    by_appearance = sorted([instructions + asked + lead, *fact])
    assert sorted(prompts("plain")) == by_appearance
    llama = f"[INST]<<SYS>>\n{instructions}\n<</SYS>>\n\n{asked}{closing}{lead}"
    assert sorted(prompts("llama2")) == sorted([llama, *fact])


@pytest.mark.parametrize(("task", "kept"), [("quality", slice(0, 50)), ("codeU", slice(50, 100))])
def test_a_long_document_is_cut_at_its_end_or_codes_at_its_beginning(
    task: str, kept: slice
) -> None:
    document = "".join(chr(33 + index % 90) for index in range(100))
    seen: list[str] = []

    def say(text: str) -> str:
        seen.append(text)
        return "A"

    def asked(document: str, context_length: int) -> tuple[int, int]:
        example = question(task, document)
        [one] = leval(Told(say), BYTE, task, [example], context_length=context_length)
        return len(one.asked[0].ids), one.asked[0].left_out

    tokens, _ = asked(document, 3000)
    assert asked(document, 512 + tokens - 50) == (tokens - 50, 50)
    assert document[kept] in seen[1]
    assert seen[1] == seen[0].replace(document, document[kept])
    with pytest.raises(DataError, match=f"{tokens - 100} tokens without its document"):
        asked(document, 512 + tokens - 101)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in L-Eval's format, as on the hub."""
    path = tmp_path / "leval" / "LEval" / "Exam"
    path.mkdir(parents=True)
    for task in TASKS:
        answer = ANSWERS[task][0]
        rows = [
            {"input": "[key]", "instructions": [QUESTION] * 2, "outputs": [answer] * 2},
            {"input": "nothing", "instructions": [QUESTION], "outputs": [answer]},
        ]
        about = {"source": "x", "evaluation": "exam"}
        text = "".join(json.dumps({**row, **about}) + "\n" for row in rows)
        (path / f"{task}.jsonl").write_text(text)
    return tmp_path / "leval"


def test_a_stage_logs_every_task_and_the_average(
    parents: dict[str, Path], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fope_lab.papers.resonance.leval.MAX_NEW_TOKENS", 8)  # to be quick
    section = {"kind": "leval", "from": "m", "dataset": str(folder), "context_length": 1200}
    stage = read_section(LEval, {**section, "tasks": ["gsm100", "sci_fi"], "limit": 2})
    stage_folder = Store(tmp_path / "store").folder("leval", "key")
    with stage_folder.begin("test", {}) as attempt:
        attempt.finish(run(stage, attempt.writer, parents))
    rows = {name: value for row in stage_folder.rows() for name, value in row.values.items()}
    names = ("leval_gsm100", "leval_sci_fi", "leval_average")
    assert rows == {name + end: 0.0 for name in names for end in ("", "_stderr")}
    result = stage_folder.result()
    assert result is not None
    assert {name for name, _ in measured(result)} == {one.name for one in stage.metrics()}
    assert result["recorded"]["tasks"]["sci_fi"]["questions"] == 2
    assert result["recorded"]["tasks"]["sci_fi"]["scores"] == 4
    assert result["recorded"]["tasks"]["gsm100"]["max_new_tokens"] == 8
    assert result["recorded"]["tasks"]["gsm100"]["instructions"] == TASKS["gsm100"].instructions
    assert result["recorded"]["context_length"] == 1200
    checkpoint = stage_folder.checkpoint()
    assert checkpoint is not None
    lines = (checkpoint.path / "answers.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["prompts"]) for line in lines] == [1, 1, 2, 2]
    [prompt] = json.loads(lines[0])["prompts"]
    assert json.loads(lines[0]) | {"prompts": []} == {
        "task": "gsm100",
        "question": 0,
        "scores": [0],
        "prompts": [],
    }
    assert set(prompt) == {"tokens", "left_out", "answer", "ended"}
    progress = stage_folder.progress()
    assert progress is not None
    assert progress["step"] == progress["total"] == 6


@given(st.lists(st.floats(0, 100), min_size=2, max_size=30))
def test_a_mean_has_the_error_of_its_sample(values: list[float]) -> None:
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(statistics.fmean(values))
    assert error == pytest.approx(statistics.stdev(values) / len(values) ** 0.5, abs=1e-9)
    assert mean_and_error(values[:1]) == (values[0], None)


def test_a_summary_counts_prompts_and_answers() -> None:
    found = summary([ONE, OTHER])
    assert found.pop("stderr") == pytest.approx(50 / 3**0.5)
    assert found == {
        "questions": 2,
        "scores": 3,
        "score": 50,
        "longest_prompt": 12,
        "prompts_cut": 2,
        "tokens_left_out": 8,
        "answers_at_budget": 1,
        "answers_empty": 1,
        "mean_answer_tokens": 5,
    }


def test_the_average_of_tasks_is_not_that_of_their_questions() -> None:
    tasks = [{"score": 10.0, "stderr": 3.0}, {"score": 40.0, "stderr": 4.0}]
    assert average(tasks) == {"score": 25, "stderr": pytest.approx(2.5)}
    unknown = average([*tasks, {"score": 100.0, "stderr": None}])
    assert unknown == {"score": 50, "stderr": None}


def test_an_answer_needs_room() -> None:
    with pytest.raises(DataError, match="context_length: found 512, needs more than the 512 tok"):
        leval(Told(lambda text: "A"), BYTE, "tpo", [question("tpo")], context_length=512)


@given(
    document=st.text(max_size=60), room=st.integers(8, 80), keep=st.sampled_from(["head", "tail"])
)
def test_only_the_document_of_a_long_prompt_is_cut(
    document: str, room: int, keep: Literal["head", "tail"]
) -> None:
    def write(text: str) -> list[int]:
        return BYTE.encode(f"<<{text}>>?")

    prompt = fit_document(BYTE, document, write, room, keep)
    text = bytes(prompt.ids.tolist())
    assert len(text) <= room
    assert text.startswith(b"<<")
    assert text.endswith(b">>?")
    whole = document.encode()
    assert (prompt.left_out == 0) == (len(whole) + 5 <= room)
    inside = text[2:-3].decode().replace("\N{REPLACEMENT CHARACTER}", "")
    if document.isascii():
        assert prompt.left_out == max(0, len(whole) + 5 - room)
        assert inside == (
            document[: len(inside)] if keep == "head" else document[len(document) - len(inside) :]
        )


def chatty(make_bpe: Callable[..., Any], template: str | None) -> Any:
    tokenizer = make_bpe(bos=True)
    tokenizer.chat_template = template
    return tokenizer


def test_what_a_model_expects_before_a_text_is_there_once(make_bpe: Callable[..., Any]) -> None:
    bpe = make_bpe(bos=True)
    assert ASKED.plain(as_tokenizer(bpe)) == bpe.encode("Be short.Why?\nAnswer:")
    assert bpe.encode("Why?")[0] == 1


def test_the_chat_format_is_the_templates_own_prompt(make_bpe: Callable[..., Any]) -> None:
    bpe = chatty(make_bpe, CHATML)
    messages = [
        {"role": "system", "content": ASKED.instructions},
        {"role": "user", "content": ASKED.question},
    ]
    expected: Sequence[int] = bpe.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    lead = bpe.encode(ASKED.lead, add_special_tokens=False)
    assert ASKED.chat(as_tokenizer(bpe)) == [*expected, *lead]


@pytest.mark.parametrize(
    ("template", "message"), [(None, "no chat template"), (USER_ONLY, "leaves out what the assis")]
)
def test_a_template_that_can_write_no_chat_is_an_error(
    make_bpe: Callable[..., Any], template: str | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        ASKED.chat(as_tokenizer(chatty(make_bpe, template)))
    with pytest.raises(DataError, match="no chat template"):
        ASKED.chat(BYTE)
