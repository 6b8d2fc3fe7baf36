"""The corpora that a stage reads, and whether it can read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fope_lab.config.problems import ConfigError, FieldPath, Problem
from fope_lab.data.corpora.base import Corpus, Split
from fope_lab.data.roles import text_role, validation_role
from fope_lab.data.tasks.base import task_problem
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, may_write_chats
from fope_lab.stages import Finetune, StageConfig, TrainingConfig
from fope_lab.stages.labels import corpus_label, tokenizer_label


@dataclass(frozen=True)
class Input:
    """A corpus that a stage reads; `path` is its place inside the stage's section.

    The role is a text_role, or a validation_role of what a training validates on.
    """

    role: str
    corpus: Corpus
    path: FieldPath
    split: Split


def inputs_of(
    spec: StageConfig, given: Mapping[str, Any], tokenizer: TokenizerRecipe
) -> list[Input]:
    """Return the corpora that a stage reads; `given` are the fields of its section.

    Raises ConfigError for what the stage can't read, or can't do with the tokenizer.
    """
    if isinstance(spec, TrainingConfig):
        inputs, problems = _training_inputs(spec, given["data"], tokenizer)
    else:
        inputs = [
            Input(text_role(i), corpus, (field,), "validation")
            for i, (field, corpus) in enumerate(spec.corpora().items())
        ]
        problems = list(spec.tokenizer_problems(tokenizer))
    problems += _corpus_problems(spec, inputs, tokenizer)
    if problems:
        raise ConfigError(problems)
    if isinstance(spec, TrainingConfig) and spec.train.validate_every is not None:
        held_out = {text_role(i): validation_role(i) for i in range(len(spec.data.mix))}
        inputs += [replace(each, role=held_out[each.role], split="validation") for each in inputs]
    return inputs


def _training_inputs(
    spec: TrainingConfig, data: Mapping[str, Any], tokenizer: TokenizerRecipe
) -> tuple[list[Input], list[Problem]]:
    """Return the corpora of a stage's `data`, and what is wrong with its other fields."""
    inputs = []
    problems = list(_settings_without_effect(spec))
    for i, source in enumerate(spec.data.mix):
        mixed = "mix" in data
        given, path = (data["mix"][i], ("data", "mix", i)) if mixed else (data, ("data",))
        if source.corpus is not None:
            field = ("corpus",) if "corpus" in given else ()
            inputs.append(Input(text_role(i), source.corpus, (*path, *field), "train"))
        elif isinstance(spec, Finetune):
            message = "found a task; a stage of kind finetune reads corpora of pairs or chats"
            problems.append(Problem((*path, "task"), message))
        elif source.task is not None and (unfit := source.task.tokenizer_problem(tokenizer)):
            problems.append(Problem((*path, "task"), unfit))
        elif source.task is not None and (
            # The last token of a row is predicted and not read.
            problem := task_problem(source.task, spec.data.length + 1, tokenizer)
        ):
            reason = "a row of training has one token more than data.length"
            problems.append(Problem(("data", "length"), f"{problem} ({reason})"))
    return inputs, problems


def _settings_without_effect(spec: TrainingConfig) -> Iterator[Problem]:
    """Yield the settings of `data` that are about other data than the stage reads."""
    if spec.data.pack and not isinstance(spec, Finetune):
        message = f"has no effect: a stage of kind {spec.kind} reads text, which fills its rows"
        yield Problem(("data", "pack"), message)
    if spec.data.documents == "across":
        return
    if all(source.corpus is None for source in spec.data.mix):
        message = "has no effect: no corpus is read, so there are no documents"
        yield Problem(("data", "documents"), message)
    elif isinstance(spec, Finetune):
        message = "has no effect: in a stage of kind finetune no example attends to another"
        yield Problem(("data", "documents"), message)


def _corpus_problems(
    spec: StageConfig, inputs: Iterable[Input], tokenizer: TokenizerRecipe
) -> Iterator[Problem]:
    """Yield the corpora that a stage of this kind can't read with this tokenizer."""
    readable = ("pairs", "chats") if isinstance(spec, Finetune) else ("text",)
    for each in inputs:
        kind, holds = each.corpus.kind, f"the corpus {corpus_label(each.corpus)} holds"
        if kind not in readable:
            reads = f"a stage of kind {spec.kind} reads {' or '.join(readable)}"
            yield Problem(each.path, f"{holds} {kind}; {reads}")
        elif kind == "chats" and not may_write_chats(tokenizer):
            message = (
                f"{holds} chats, and the tokenizer {tokenizer_label(tokenizer)} "
                "has no chat template to write them in"
            )
            yield Problem(each.path, message)
