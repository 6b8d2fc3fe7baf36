"""Stages of kind lm-eval: tasks of one's own through lm-evaluation-harness, held against our own
computation, and what a sweep file can say wrong. No network: the data is local."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from heavy_imports import heavy_modules
from measured import measured, ran
from sections import read_section
from sweep_files import PRETRAIN_LINE, load, of, told, write

from benchmarks.parity import random_model
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation.context import run
from fope_lab.evaluation.lm_eval import LMEval, tasks
from fope_lab.model import Decoder, ModelConfig, load_model, save_model
from fope_lab.report import build_report
from fope_lab.report.render.json import report_json
from fope_lab.stages.metric import ResultRecord
from fope_lab.store.root import Store
from fope_lab.sweep.graph import Stage

pytest.importorskip("lm_eval", reason="needs the extra lm-eval")

BYTE = ByteTokenizer()
LENGTH = 48
DATA = (
    "dataset_path: json\ndataset_kwargs: {data_files: {test: questions.jsonl}}\ntest_split: test\n"
)
QUESTIONS: list[dict[str, Any]] = [
    {"question": "The grass is", "answers": [" green", " loud"], "right": 0, "length": 10},
    {"question": "The sky is ", "answers": ["seven", "blue"], "right": 1, "length": 20},
    {
        "question": "Two and two are",
        "answers": [" four", " five", " six"],
        "right": 0,
        "length": 30,
    },
    {
        "question": "A dog can bark, a cat can",
        "answers": [" meow", " read"],
        "right": 0,
        "length": 99,
    },
]
FILES = {
    "choose.yaml": DATA
    + """
task: choose
tag: [both]
output_type: multiple_choice
doc_to_text: question
doc_to_choice: answers
doc_to_target: right
target_delimiter: ""
metadata: {version: 2.5}
""",
    "say.yaml": DATA
    + """
task: say
tag: both
doc_to_text: question
doc_to_target: right
generation_kwargs: {until: ["e", "\\n"], max_gen_toks: 12}
process_results: !function scores.score
metric_list:
  - {metric: letters, aggregation: mean, higher_is_better: true}
filter_list:
  - {name: whole, filter: [{function: take_first}]}
  - {name: one-letter, filter: [{function: regex, regex_pattern: "^(.)"}, {function: take_first}]}
""",
    "read.yaml": DATA
    + """
task: read
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}} {{question}} {{question}}"
""",
    "group.yaml": """
group: everything
task: [choose, say]
aggregate_metric_list: [{metric: acc, weight_by_size: true}]
""",
    "scores.py": "def score(doc, results):\n    return {'letters': float(len(results[0]))}\n",
    "questions.jsonl": "".join(json.dumps(question) + "\n" for question in QUESTIONS),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Task files of one's own, and a model whose embedding weighs although it is not trained."""
    folder = tmp_path_factory.mktemp("lm-eval")
    for name, content in FILES.items():
        write(folder / "tasks" / name, content)
    (folder / "model").mkdir()
    config = ModelConfig(num_layers=1, num_heads=2, head_dim=8, vocab_size=272)
    model = Decoder(config, "rope", train_length=LENGTH, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    save_model(folder / "model", model, context_length=LENGTH, tokenizer="byte")
    return folder


@pytest.fixture(scope="module")
def ask(folder: Path) -> Callable[..., dict[str, Any]]:
    """A function that runs a stage with some options and returns its result."""

    def asked(**options: Any) -> dict[str, Any]:
        section = {"from": "model", "include_path": "tasks", **options}
        spec = read_section(LMEval, section, base=folder)
        key = json.dumps(options).translate({ord("/"): None})
        stage, result = ran(spec, folder / "store", {"from": folder / "model"}, key)
        checkpoint = stage.checkpoint()
        assert checkpoint is not None
        answers = (checkpoint.path / "answers.jsonl").read_text().splitlines()
        return {**result, "answers": [json.loads(line) for line in answers]}

    return asked


def logprob(model: Any, context: list[int], continuation: list[int]) -> float:
    """The log-probability of a continuation, token by token from whole sequences."""
    total = 0.0
    for place, token in enumerate(continuation):
        logits = model(torch.tensor([context + continuation[:place]])).logits[0, -1]
        total += float(logits.detach().double().log_softmax(-1)[token])
    return total


def greedy(model: Any, ids: list[int], budget: int) -> str:
    new: list[int] = []
    while len(new) < budget and BYTE.eos_id not in new:
        new.append(int(model(torch.tensor([ids + new])).logits[0, -1].argmax()))
    text = BYTE.decode(new)
    return text.partition("e")[0].partition("\n")[0]


@pytest.fixture(scope="module")
def found(ask: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return ask(tasks=["everything", "read"])


def test_choices_are_those_of_the_most_probable_answer(folder: Path, found: Any) -> None:
    model = load_model(folder / "model")
    right, right_by_letter = [], []
    for question in QUESTIONS:
        text = question["question"].rstrip()
        between = question["question"][len(text) :]
        answers = question["answers"]
        scores = [logprob(model, BYTE.encode(text), BYTE.encode(between + one)) for one in answers]
        by_letter = [score / len(one) for score, one in zip(scores, answers, strict=True)]
        right.append(int(np.argmax(scores)) == question["right"])
        right_by_letter.append(int(np.argmax(by_letter)) == question["right"])
        [line] = [
            one for one in found["answers"]
            if one["task"] == "choose" and QUESTIONS[one["question"]] is question
        ]  # fmt: skip
        assert [value for value, _ in line["answers"]] == pytest.approx(scores, rel=1e-5)
    metrics = {metric["name"]: metric for metric in found["metrics"]}
    assert metrics["choose_acc"]["value"] == np.mean(right)
    assert metrics["choose_acc_norm"]["value"] == np.mean(right_by_letter)
    assert metrics["choose_acc"]["stderr"] == pytest.approx(np.std(right, ddof=1) / 2)
    assert metrics["everything_acc"] == {**metrics["choose_acc"], "name": "everything_acc"}
    assert 0 < np.mean(right) < 1, "it tells right from wrong"


@pytest.mark.parametrize("name", ["gemma3", "qwen3", "phi3", "gpt-neox", "gpt2"])
def test_a_model_of_another_family_is_asked_as_transformers_has_it(
    name: str, folder: Path, tmp_path: Path, make_bpe: Callable[..., Any]
) -> None:
    theirs, tokenizer = random_model(name), make_bpe(60)
    theirs.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    section = {"from": "model", "include_path": str(folder / "tasks"), "tasks": ["choose"]}
    stage, _ = ran(read_section(LMEval, section), tmp_path / "store", {"from": tmp_path / "model"})
    checkpoint = stage.checkpoint()
    assert checkpoint is not None
    for row in (checkpoint.path / "answers.jsonl").read_text().splitlines():
        line = json.loads(row)
        question = QUESTIONS[line["question"]]
        text = question["question"].rstrip()
        context = tokenizer.encode(text)
        expected = []
        for answer in question["answers"]:
            whole = tokenizer.encode(question["question"] + answer)
            assert whole[: len(context)] == context
            expected.append(logprob(theirs, context, whole[len(context) :]))
        assert [value for value, _ in line["answers"]] == pytest.approx(expected, rel=1e-4)


def test_answers_are_greedy_and_end_before_a_stop(folder: Path, found: Any) -> None:
    model = load_model(folder / "model")
    said = {one["question"]: one["answers"][0] for one in found["answers"]
            if one["filter"] == "whole"}  # fmt: skip
    for place, question in enumerate(QUESTIONS):
        ids = BYTE.encode(question["question"])[-(LENGTH - 12) :]
        assert said[place] == greedy(model, ids, 12)
    values = measured({name: found[name] for name in found if name != "answers"})
    texts = [said[place] for place in range(len(QUESTIONS))]
    assert values["say_letters_whole", None] == np.mean([len(text) for text in texts])
    letters = [len(text[:1].strip()) for text in texts]  # the harness's regex strips its match
    assert values["say_letters_one_letter", None] == np.mean(letters)


def test_a_text_is_read_once_with_as_much_context_as_fits(folder: Path, found: Any) -> None:
    """Texts of 38 to 80 tokens: some longer than the context of 48."""
    model, total, size = load_model(folder / "model"), 0.0, 0
    for question in QUESTIONS:
        text = " ".join([question["question"]] * 3)
        ids = [BYTE.eos_id, *BYTE.encode(text)]
        size += len(text.encode())
        total += logprob(model, ids[:1], ids[1 : LENGTH + 1])
        for end in range(LENGTH + 1, len(ids), LENGTH):  # the last window is full
            last = min(end + LENGTH, len(ids))
            for token in range(end, last):
                total += logprob(model, ids[last - LENGTH - 1 : token], [ids[token]])
    values = measured({name: found[name] for name in found if name != "answers"})
    bits = -total / size / np.log(2)
    assert values["read_bits_per_byte", None] == pytest.approx(bits, rel=1e-5)


def test_a_long_prompt_loses_its_beginning_or_its_middle(
    folder: Path, ask: Callable[..., dict[str, Any]]
) -> None:
    model, room = load_model(folder / "model"), 20 - 12
    for cut in ("beginning", "middle"):
        result = ask(tasks=["say"], context_length=20, cut=cut, limit=2)
        for line in result["answers"][:2]:
            ids = BYTE.encode(QUESTIONS[line["question"]]["question"])
            kept = ids[-room:] if cut == "beginning" else [*ids[: room // 2], *ids[-room // 2 :]]
            assert line["answers"] == [greedy(model, kept, 12)]
        assert (result["recorded"]["prompts_cut"], result["recorded"]["tokens_left_out"]) == (2, 7)
        assert result["recorded"]["questions"] == {"say": {"asked": 2, "of": 4}}


def test_questions_are_averaged_by_their_words(ask: Callable[..., dict[str, Any]]) -> None:
    """Lengths 10, 20, 30 and 99: below 20, below 35, and beyond all in the last range."""
    result = ask(tasks=["choose"], by_words=[20, 35, 50])
    scores = [line["scores"]["acc"] for line in result["answers"]]
    metrics = {
        metric["x"]: (metric["value"], metric["n"])
        for metric in result["metrics"] if metric["name"] == "choose_acc_by_words"
    }  # fmt: skip
    expected = {20: (scores[0], 1), 35: (np.mean(scores[1:3]), 2), 50: (scores[3], 1)}
    assert metrics == expected


def test_examples_stand_before_a_question(ask: Callable[..., dict[str, Any]]) -> None:
    with_examples = ask(tasks=["choose"], num_fewshot=2, context_length=200)
    assert with_examples["recorded"]["num_fewshot"] == {"choose": 2}
    alone = ask(tasks=["choose"], context_length=200)
    assert with_examples["answers"] != alone["answers"]


def test_files_that_changed_since_the_plan_are_an_error(folder: Path) -> None:
    other = folder / "changed"
    for name, content in FILES.items():
        write(other / name, content)
    spec = read_section(LMEval, {"from": "m", "include_path": str(other), "tasks": ["say"]})
    spec.key_replacements()
    write(other / "scores.py", "def score(doc, results):\n    return {'letters': 1.0}\n")
    stage = Store(folder / "store").folder("lm-eval", "changed")
    with stage.begin("test", {}) as attempt, pytest.raises(DataError, match="the files of say"):
        run(spec, attempt.writer, {"from": folder / "model"})


def test_data_that_can_not_be_loaded_is_one_error(folder: Path) -> None:
    write(folder / "broken" / "t.yaml", FILES["choose.yaml"])
    write(folder / "broken" / "questions.jsonl", "{")
    spec = read_section(
        LMEval, {"from": "m", "include_path": str(folder / "broken"), "tasks": ["choose"]}
    )
    stage = Store(folder / "store").folder("lm-eval", "broken")
    with (
        stage.begin("test", {}) as attempt,
        pytest.raises(DataError, match=r"choose can.t .* JSON"),
    ):
        run(spec, attempt.writer, {"from": folder / "model"})


def section(**fields: Any) -> str:
    content = json.dumps({"kind": "lm-eval", "from": "p", **fields})
    return f"name: x\nstages:\n  p: {PRETRAIN_LINE}\n  e: {content}\n"


def stage_of(folder: Path, **fields: Any) -> Stage:
    [found] = of(load(folder, section(**fields)), "e")
    return found


def test_metrics_are_of_each_task_and_filter(folder: Path) -> None:
    def names(**fields: Any) -> dict[str, str]:
        metrics = stage_of(folder, include_path="tasks", **fields).spec.metrics()
        return {metric.short_name: metric.name for metric in metrics}

    assert names(tasks=["everything"]) == {
        "choose": "choose_acc",
        "choose_acc_norm": "choose_acc_norm",
        "say": "say_letters_whole",
        "say_letters_one_letter": "say_letters_one_letter",
        "everything": "everything_acc",
    }
    assert list(names(tasks=["both"])) == list(names(tasks=["everything"]))[:4]
    assert names(tasks=["arc_easy", "wikitext"]) == {
        "arc_easy": "arc_easy_acc",
        "arc_easy_acc_norm": "arc_easy_acc_norm",
        "wikitext": "wikitext_word_perplexity",
        "wikitext_byte_perplexity": "wikitext_byte_perplexity",
        "wikitext_bits_per_byte": "wikitext_bits_per_byte",
    }
    curves = stage_of(folder, tasks=["longbench_trec_e"], by_words=[8000, 4000]).spec.metrics()
    assert [(one.name, one.xs) for one in curves] == [
        ("longbench_trec_e_score_by_words", (4000, 8000)),
        ("longbench_trec_e_classification_score_by_words", (4000, 8000)),
    ]


def test_a_sweep_asks_reports_and_judges_a_claim(folder: Path, tmp_path: Path) -> None:
    """From the file to the report, without a cluster: the pretrainings are small models as they
    are, and the questions are really asked."""
    fields = {"tasks": ["choose", "read"], "include_path": str(folder / "tasks"), "limit": 3}
    text = section(**fields).replace("name: x", "name: x\nseeds: [0, 1, 2]") + (
        "grid: {p.embedding: [rope, nope]}\n"
        "report: {claims: ['choose: rope > nope', 'read_bits_per_byte: rope <= nope + 9']}\n"
    )
    sweep, store = load(tmp_path, text), Store(tmp_path / "store")
    config = ModelConfig(num_layers=1, num_heads=2, head_dim=8, vocab_size=272)
    for stage in of(sweep, "p"):
        model = Decoder(config, stage.embedding, train_length=64, seed=stage.seed)

        def write(to: Path, model: Decoder = model) -> None:
            save_model(to, model, context_length=64, tokenizer="byte")

        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            attempt.writer.save_checkpoint(1, write)
            attempt.finish(ResultRecord().as_json())
    values: dict[str, list[float]] = {}
    for stage in of(sweep, "e"):
        checkpoint = store.folder("pretrain", stage.parents["from"]).checkpoint()
        assert checkpoint is not None
        own, result = ran(stage.spec, store.root, {"from": checkpoint.path}, stage.key)
        rows = {name: value for row in own.rows() for name, value in row.values.items()}
        assert rows["choose_acc"] == measured(result)["choose_acc", None]  # what goes to MLflow
        values.setdefault(str(stage.embedding), []).append(rows["choose_acc"])
    report = report_json(build_report(sweep, store, provenance={}))
    cells = [cell for cell in report["cells"] if cell["metric"] == "choose_acc"]
    found = {cell["axes"]["p.embedding"]: (cell["n"], cell["mean"]) for cell in cells}
    assert found == {name: (3, pytest.approx(np.mean(of_it))) for name, of_it in values.items()}
    assert [one["verdict"] for one in report["claims"]] == ["undecided", "holds"]


def test_the_key_has_versions_data_and_the_content_of_files(folder: Path, tmp_path: Path) -> None:
    spec = stage_of(folder, tasks=["arc_easy"]).spec
    assert spec.key_replacements()["tasks"] == {
        "arc_easy": {
            "version": 1.0, "data": "allenai/ai2_arc", "name": "ARC-Easy", "revision": None,
        }
    }  # fmt: skip
    for name, content in FILES.items():
        write(tmp_path / "tasks" / name, content)

    def key(**fields: Any) -> str:
        return stage_of(tmp_path, include_path="./tasks", **fields).key

    before = key(tasks=["choose"])
    assert before == stage_of(folder, tasks=["choose"], include_path="tasks").key, "not its place"
    others = [{"num_fewshot": 1}, {"limit": 3}, {"format": "chat"}, {"cut": "middle"}]
    others += [{"context_length": 47}, {"by_words": [9]}, {"tasks": ["choose", "read"]}]
    keys = {before}
    for fields in others:
        if fields != {"format": "chat"}:  # the byte tokenizer has no template
            keys.add(key(**{"tasks": ["choose"], **fields}))
    for name in ("questions.jsonl", "choose.yaml", "scores.py"):
        write(tmp_path / "tasks" / name, FILES[name] + "\n")
        keys.add(key(tasks=["choose"]))
        write(tmp_path / "tasks" / name, FILES[name])
    write(tmp_path / "tasks" / "read.yaml", FILES["read.yaml"] + "\n")
    assert key(tasks=["choose"]) == before, "a task that is not asked for"
    assert len(keys) == 1 + 6 + 3


@pytest.mark.parametrize(
    ("fields", "where", "what"),
    [
        ({"tasks": ["arc_esy"]}, "tasks[0]", "unknown task 'arc_esy'"),
        ({"tasks": ["choos"], "include_path": "tasks"}, "tasks[0]", "did you mean 'choose'?"),
        ({"tasks": []}, "tasks", "at least one entry"),
        ({"tasks": ["arc_easy", "arc_easy"]}, "tasks[1]", "names arc_easy twice"),
        ({"tasks": ["arc_easy", "ai2_arc"]}, "tasks", "arc_easy is twice among"),
        ({"tasks": ["squadv2"]}, "tasks", "is a Python class"),
        ({"tasks": ["humaneval"]}, "tasks", "runs code that the model writes"),
        ({"tasks": ["arc_easy"], "include_path": "./none"}, "include_path", "found no folder"),
        ({"tasks": ["arc_easy"], "num_fewshot": -1}, "num_fewshot", "needs at least 0"),
        ({"tasks": ["arc_easy"], "limit": 0}, "limit", "needs at least 1"),
        ({"tasks": ["arc_easy"], "shots": 3}, "shots", "unknown key 'shots'"),
        ({"tasks": ["gsm8k"], "context_length": 200}, "context_length", "needs more than the 256"),
        ({"tasks": ["arc_easy"], "format": "chat"}, "format", "byte has no chat template"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_is_told(
    folder: Path, fields: Mapping[str, Any], where: str, what: str
) -> None:
    [message] = told(folder, section(**fields))
    assert message.startswith(f"4 stages.e.{where}: ")
    assert what in message


def test_a_wrong_file_of_ones_own_is_told(tmp_path: Path) -> None:
    write(tmp_path / "tasks" / "t.yaml", FILES["choose.yaml"].replace("[both]", "[both"))
    write(tmp_path / "missing" / "t.yaml", FILES["choose.yaml"])
    [broken] = told(tmp_path, section(tasks=["choose"], include_path="tasks"))
    assert "t.yaml can't be read" in broken
    [missing] = told(tmp_path, section(tasks=["choose"], include_path="missing"))
    assert f"found no file {tmp_path / 'missing' / 'questions.jsonl'}" in missing


def test_packages_that_a_task_lacks_are_told(tmp_path: Path) -> None:
    """As the harness's LongBench asks for them; what a module can do without is not asked for."""
    code = """
import json, scores_of_mine
try:
    import not_there, numpy
    from neither.here import x
except ImportError:
    raise ImportError("pip install them")
try:
    import optional_one
except ImportError:
    optional_one = None
"""
    write(tmp_path / "tasks" / "t.yaml", FILES["say.yaml"])
    write(tmp_path / "tasks" / "questions.jsonl", FILES["questions.jsonl"])
    write(tmp_path / "tasks" / "scores.py", code + FILES["scores.py"])
    write(tmp_path / "tasks" / "scores_of_mine.py", "")
    [message] = told(tmp_path, section(tasks=["say"], include_path="tasks"))
    assert "the task say needs neither, not_there, which is not installed here" in message
    assert "fope-lab[lm-eval]" in message


def test_without_the_harness_the_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "PACKAGE", "not_installed_anywhere")
    [message] = told(folder, section(tasks=["arc_easy"]))
    assert message.endswith("pip install 'fope-lab[lm-eval]'")


def test_names_are_found_as_the_harness_finds_them() -> None:
    from lm_eval.tasks._index import Kind, TaskIndex

    for place in ("arc", "longbench", "mmlu/default", "wikitext", "glue"):
        root = tasks._folder_of_package()
        assert root is not None
        theirs = TaskIndex.build([root / place])
        ours = tasks._names_below(root / place)
        assert ours.files == {
            name: str(one.yaml_path) for name, one in theirs.items() if one.kind is not Kind.TAG
        }
        assert ours.tags == {name: one.tags for name, one in theirs.items() if one.kind is Kind.TAG}


def test_a_plan_imports_no_torch(folder: Path) -> None:
    file = write(folder / "sweep.yaml", section(tasks=["everything"], include_path="tasks"))
    assert heavy_modules(f"from fope_lab.sweep import load_sweep; load_sweep({str(file)!r})") == []
