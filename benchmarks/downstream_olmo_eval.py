"""olmo_eval's side of downstream.py, run with the Python of an environment with olmo_eval.

    python benchmarks/downstream_olmo_eval.py ORDER.json

It keeps the task's questions that match those of the order token by token, and prints the metrics
that olmo_eval's own class computes from the model's logits. It exits with 1 if the order has a
question that olmo_eval lacks.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import torch
from olmo_eval import HFTokenizer, ICLMetric, build_task

from fope_lab.model import load_model

BATCH_TOKENS = 1024  # of whose logits each is held: 200 MB


def main() -> None:
    """Compute the metrics of the order and print them as JSON."""
    order = json.loads(Path(sys.argv[1]).read_text())
    tokenizer = HFTokenizer(
        order["tokenizer"], pad_token_id=order["eos"], eos_token_id=order["eos"]
    )
    task = build_task(order["label"], tokenizer, model_ctx_len=order["max_length"])
    samples = asked(task.samples, order)
    model = load_model(Path(order["checkpoint"]))
    metric = ICLMetric(metric_type=task.metric_type)
    with torch.inference_mode():
        for batch in batches(samples):
            collated = task.collate_fn(batch)
            metric.update(collated, model(collated["input_ids"]).logits)
    print(json.dumps({name: float(value) for name, value in metric.compute().items()}))


def asked(samples: list[dict[str, Any]], order: dict[str, Any]) -> list[dict[str, Any]]:
    """Return olmo_eval's samples of the questions in the order."""
    questions: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for sample in samples:
        questions[sample["doc_id"]].append(sample)
    if len(questions) != order["of"]:
        sys.exit(f"{order['label']}: {order['of']} questions, and olmo_eval has {len(questions)}")
    wanted = Counter(json.dumps(question) for question in order["questions"])
    found = []
    for mine in questions.values():
        tokens = json.dumps([pair(sample) for sample in mine])
        if wanted[tokens]:
            wanted[tokens] -= 1
            found += mine
    if others := wanted.total():
        sys.exit(f"{order['label']}: {others} questions are not olmo_eval's")
    return found


def pair(sample: dict[str, Any]) -> list[list[int]]:
    """Return the part of the context that the model reads, and the continuation."""
    context = sample["query"][: len(sample["query"]) - len(sample["continuation"]) + 1]
    return [context, sample["continuation"]]


def batches(samples: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group samples of similar lengths, which olmo_eval pads to multiples of 128."""
    found: list[list[dict[str, Any]]] = []
    for sample in sorted(samples, key=lambda sample: len(sample["query"])):
        length = -(-len(sample["query"]) // 128) * 128
        if not found or (len(found[-1]) + 1) * length > BATCH_TOKENS:
            found.append([])
        found[-1].append(sample)
    return found


if __name__ == "__main__":
    main()
