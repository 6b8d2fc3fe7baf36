"""lm-evaluation-harness evaluates an export, on a task of its own kind and on ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fope_lab.cli import main
from fope_lab.data.problems import DataError
from fope_lab.data.tasks.passkey import build_trial
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation.passkey import passkey_accuracy
from fope_lab.evaluation.scoring.loglikelihood import score_continuations
from fope_lab.harness import TASKS, passkey
from fope_lab.model import Decoder, ModelConfig, load_model, save_model
from fope_lab.model.export.folder import export

pytest.importorskip("lm_eval", reason="needs the extra lm-eval")

CONFIG = ModelConfig(num_layers=1, num_heads=4, head_dim=16, vocab_size=272)
LENGTHS, TRIALS, FORM, STEPS = (24, 40), 30, "symbolic", 150
METADATA = {"lengths": LENGTHS, "trials": TRIALS, "form": FORM}
QUESTIONS = [
    {"question": "The grass is", "answers": [" green", " loud"], "right": 0},
    {"question": "The sky is", "answers": [" seven", " blue"], "right": 1},
    {"question": "Two and two are", "answers": [" four", " five", " six"], "right": 0},
]
TASK = """
task: local_questions
dataset_path: json
dataset_kwargs: {{data_files: {{test: {path}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: question
doc_to_choice: answers
doc_to_target: right
target_delimiter: ""
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""

RUN = """
# What `lm_eval run --model hf` does, without the seconds that it takes to list its own tasks.
import json, sys
from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

model, metadata, paths = json.loads(sys.argv[1])
tasks = TaskManager(include_path=paths, include_defaults=False, metadata={**metadata, **model})
found = simple_evaluate(
    "hf", model, ["fope_lab_passkey", "local_questions"], task_manager=tasks,
    batch_size=16, device="cpu", log_samples=True, bootstrap_iters=0,
)
kept = {name: found[name] for name in ("results", "samples")}
json.dump(kept, open("found.json", "w"), default=str)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of a model that knows every other trial by heart."""
    folder = tmp_path_factory.mktemp("exported")
    model = Decoder(CONFIG, "rope", train_length=max(LENGTHS))
    learn_every_other_trial(model)
    save_model(folder / "checkpoint", model, context_length=32, tokenizer="byte")
    return export(folder / "checkpoint", folder / "out")


def learn_every_other_trial(model: Decoder) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    batches = []
    for length in LENGTHS:
        trials = [build_trial(ByteTokenizer(), length, i, form=FORM) for i in range(0, TRIALS, 2)]
        batches.append(torch.stack([torch.from_numpy(trial.input_ids) for trial in trials]))
    for _ in range(STEPS):
        losses = [
            cross_entropy(model(ids).logits[:, -6:-1].flatten(0, 1), ids[:, -5:].flatten())
            for ids in batches
        ]
        optimizer.zero_grad()
        sum(losses).backward()  # type: ignore[union-attr]
        optimizer.step()


@pytest.fixture(scope="module")
def found(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one run of the harness gives for each question of both tasks, without a network."""
    folder = tmp_path_factory.mktemp("harness")
    data = folder / "questions.json"
    data.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    task = folder / "local_questions.yaml"
    task.write_text(TASK.format(path=data))
    model = {"pretrained": str(exported), "trust_remote_code": True, "max_length": max(LENGTHS)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps([model, METADATA, [str(TASKS), str(folder)]])],
        cwd=folder,
        env={**os.environ, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    for samples in found["samples"].values():
        samples.sort(key=lambda sample: sample["doc_id"])
    return found


def test_the_passkey_accuracy_is_our_own(exported: Path, found: dict[str, Any]) -> None:
    model = load_model(exported)
    ours = [
        passkey_accuracy(model, ByteTokenizer(), length, trials=TRIALS, form=FORM).correct
        for length in LENGTHS
    ]
    assert all(0.3 < correct.mean() < 0.9 for correct in ours), "it tells right from wrong"
    right = [bool(sample["acc"]) for sample in found["samples"]["fope_lab_passkey"]]
    assert right == np.concatenate(ours).tolist()
    scores = found["results"]["fope_lab_passkey"]
    for length, correct in zip(LENGTHS, ours, strict=True):
        assert scores[f"acc_{length},none"] == pytest.approx(correct.mean())
    assert scores["acc,none"] == pytest.approx(np.concatenate(ours).mean())


def test_a_task_of_the_user_is_scored_as_we_score_it(exported: Path, found: dict[str, Any]) -> None:
    model, ids = load_model(exported), ByteTokenizer().encode
    for question, sample in zip(QUESTIONS, found["samples"]["local_questions"], strict=True):
        requests = [(ids(question["question"]), ids(answer)) for answer in question["answers"]]
        expected = [score.logprob for score in score_continuations(model, requests)]
        answers = [float(answer[0]) for [answer] in sample["resps"]]
        assert answers == pytest.approx(expected, rel=1e-4)


def test_the_command_prints_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["harness"]) == 0
    folder = Path(capsys.readouterr().out.removesuffix("\n"))
    assert (folder / "passkey.yaml").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 64}, "needs the lengths"),
        ({"lengths": [32], "max_length": 31}, "needs max_length=32 or more"),
        ({"lengths": [32]}, "needs max_length=32 or more"),
        ({"lengths": [32], "max_length": 32}, "needs pretrained="),
        ({"lengths": [32], "max_length": 32, "tokenizer": "byte"}, "English prompt"),
        ({"lengths": [32], "max_length": 32, "tokenizer": "byte", "form": "x"}, "unknown passkey"),
    ],
)
def test_a_wrong_option_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, DataError), match=message):
        passkey.dataset(**options, trials=1)


class Lowering(ByteTokenizer):
    """A tokenizer that does not give back the text that it was given."""

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode(ids).lower()


def test_tokens_that_change_when_read_as_text_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passkey, "load_tokenizer", lambda name: Lowering())
    with pytest.warns(UserWarning, match="3 of 3 passkey prompts have other tokens"):
        passkey.dataset(lengths=[400], trials=3, max_length=400, tokenizer="lowering")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", ["english", "symbolic"])
def test_a_byte_level_bpe_reads_the_same_tokens(
    tmp_path: Path, make_bpe: Callable[..., Any], form: str
) -> None:
    make_bpe().save_pretrained(tmp_path)
    options = {"max_length": 220, "tokenizer": str(tmp_path), "form": form}
    rows = passkey.dataset(lengths=[220], trials=20, **options)["test"]
    assert all(rows["same_tokens"])
    assert {row["length"] for row in rows} == {220}
