"""What a stage reads: corpora by role, and whether its prompts fit their lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fope_lab.config.problems import FieldPath
from fope_lab.data.corpora.base import Corpus, Kind, Split
from fope_lab.data.recipe import Source
from fope_lab.data.tasks.base import task_problem
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, may_write_chats
from fope_lab.stages import Finetune, StageConfig, TrainingConfig
from fope_lab.stages.labels import corpus_label, tokenizer_label
from fope_lab.sweep.model_spec import Report

Inputs = dict[str, tuple[Corpus, FieldPath, Split]]
"""A corpus by its role, with its path inside the stage's section, and the split that is read:
"data.0", … are what a stage trains on or evaluates, "validation.0", … what it validates on."""


def inputs_of(
    spec: StageConfig, section: Mapping[str, Any], tokenizer: TokenizerRecipe, report: Report
) -> Inputs | None:
    """The corpora that a stage reads. None after reporting what it can't read."""
    problems: list[tuple[FieldPath, str]] = [*_rows_without_effect(spec)]
    inputs: Inputs = {}
    wanted: tuple[Kind, ...] = ("pairs", "chats") if isinstance(spec, Finetune) else ("text",)
    if isinstance(spec, TrainingConfig):
        mixed = "mix" in section["data"]
        for i, source in enumerate(spec.data.mix):
            path: FieldPath = ("data", "mix", i) if mixed else ("data",)
            if source.corpus is not None:
                given = section["data"]["mix"][i] if mixed else section["data"]
                field = ("corpus",) if "corpus" in given else ()
                inputs[f"data.{i}"] = source.corpus, (*path, *field), "train"
            elif isinstance(spec, Finetune):
                message = "found a task; a stage of kind finetune reads corpora of pairs or chats"
                problems.append(((*path, "task"), message))
            elif misfit := _row_misfit(source, spec.data.length, tokenizer):
                problems.append((("data", "length"), misfit))
    else:
        for i, (name, corpus) in enumerate(spec.corpora().items()):
            inputs[f"data.{i}"] = corpus, (name,), "validation"
        problems += spec.tokenizer_problems(tokenizer)
    for corpus, path, _ in inputs.values():
        if corpus.kind not in wanted:
            message = (
                f"the corpus {corpus_label(corpus)} holds {corpus.kind}; a stage of kind "
                f"{spec.kind} reads {' or '.join(wanted)}"
            )
            problems.append((path, message))
        elif corpus.kind == "chats" and not may_write_chats(tokenizer):
            message = (
                f"the corpus {corpus_label(corpus)} holds chats, and the tokenizer "
                f"{tokenizer_label(tokenizer)} has no chat template to write them in"
            )
            problems.append((path, message))
    for path, message in problems:
        report(path, message)
    return None if problems else inputs | _held_out(spec, inputs)


def _held_out(spec: StageConfig, inputs: Inputs) -> Inputs:
    """What a training stage validates on: the other split of the corpora that it trains on."""
    if not isinstance(spec, TrainingConfig) or spec.train.validate_every is None:
        return {}
    return {
        f"validation{role.removeprefix('data')}": (corpus, path, "validation")
        for role, (corpus, path, _) in inputs.items()
    }


def _rows_without_effect(spec: StageConfig) -> Iterator[tuple[FieldPath, str]]:
    """What a training stage says about its rows that is for other data than it reads."""
    if not isinstance(spec, TrainingConfig):
        return
    examples = isinstance(spec, Finetune)
    if spec.data.pack and not examples:
        message = f"has no effect: a stage of kind {spec.kind} reads text, which fills its rows"
        yield ("data", "pack"), message
    if spec.data.documents != "across" and all(one.corpus is None for one in spec.data.mix):
        message = "has no effect: there is no corpus, whose documents it is about"
        yield ("data", "documents"), message
    elif spec.data.documents != "across" and examples:
        message = "has no effect: in a stage of kind finetune no example sees another"
        yield ("data", "documents"), message


def _row_misfit(source: Source, length: int, tokenizer: TokenizerRecipe) -> str | None:
    assert source.task is not None
    message = task_problem(source.task, length + 1, tokenizer)
    return message and f"{message} (a row of training has one token more than data.length)"
