"""What a stage reads: corpora by role, and whether its prompts fit their lengths."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from fope_lab.data.base import Corpus
from fope_lab.data.passkey import PasskeyTask, prompt_form
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import Source
from fope_lab.data.tokenizer import ByteTokenizer
from fope_lab.sweep.labels import corpus_label
from fope_lab.sweep.lineage import Report
from fope_lab.sweep.problems import FieldPath
from fope_lab.sweep.stages import Finetune, Passkey, Perplexity, StageConfig, TrainingConfig

LONGEST_PROMPT = 10_000
"""In tokens of the byte tokenizer; every prompt fits a greater length."""

Inputs = dict[str, tuple[Corpus, FieldPath]]
"""A corpus by its role ("data.0", …), with its path inside the stage's section."""


def inputs_of(
    spec: StageConfig, section: Mapping[str, Any], tokenizer: str, report: Report
) -> Inputs | None:
    """The corpora that a stage reads. None after reporting what it can't read."""
    problems: list[tuple[FieldPath, str]] = []
    inputs: Inputs = {}
    wanted = "pairs" if isinstance(spec, Finetune) else "text"
    if isinstance(spec, TrainingConfig):
        mixed = "mix" in section["data"]
        for i, source in enumerate(spec.data.mix):
            path: FieldPath = ("data", "mix", i) if mixed else ("data",)
            if source.corpus is not None:
                given = section["data"]["mix"][i] if mixed else section["data"]
                field = ("corpus",) if "corpus" in given else ()
                inputs[f"data.{i}"] = source.corpus, (*path, *field)
            elif isinstance(spec, Finetune):
                message = "found a task; a stage of kind finetune reads corpora of pairs"
                problems.append(((*path, "task"), message))
            elif misfit := _row_misfit(source, spec.data.length, tokenizer):
                problems.append((("data", "length"), misfit))
    elif isinstance(spec, Perplexity):
        inputs["data.0"] = spec.corpus, ("corpus",)
    elif isinstance(spec, Passkey):
        task = PasskeyTask(form=spec.form)
        if misfit := _misfit(task, min(spec.lengths), tokenizer):
            problems.append((("lengths",), misfit))
    for corpus, path in inputs.values():
        if corpus.kind != wanted:
            message = (
                f"the corpus {corpus_label(corpus)} holds {corpus.kind}; a stage of kind "
                f"{spec.kind} reads {wanted}"
            )
            problems.append((path, message))
    for path, message in problems:
        report(path, message)
    return None if problems else inputs


def _row_misfit(source: Source, length: int, tokenizer: str) -> str | None:
    assert source.task is not None
    message = _misfit(source.task, length + 1, tokenizer)
    return message and f"{message} (a row of training has one token more than data.length)"


@functools.lru_cache
def _misfit(task: PasskeyTask, length: int, tokenizer: str) -> str | None:
    """Why the task's prompts don't fit a length; None if they do, or if only running can tell."""
    if tokenizer != "byte" or length > LONGEST_PROMPT:
        return None
    try:
        prompt_form(task.form, ByteTokenizer(), task.digits).trial(length, 0)
    except DataError as error:
        return str(error)
    return None
