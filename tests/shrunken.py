"""A stage of a sweep, small enough to run in a test: the same method, schedule and kind of data.

The model has two layers of two heads, the vocabulary is the byte tokenizer's, texts are Python's
documentation, lengths are a fraction of the stage's own, and a training is one step. The base of a
rotary embedding is such that as large a share of its pairs turns round within the small length as
within the stage's own.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fope_lab.analysis import Analysis
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.recipe import Data, Source
from fope_lab.data.tasks.algorithmic_task import AlgorithmicTask
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer, is_built_in
from fope_lab.embeddings import Embedding, parse_embedding
from fope_lab.evaluation.base import Evaluation
from fope_lab.evaluation.lm_eval import LMEval
from fope_lab.evaluation.lm_eval.tasks import all_tasks
from fope_lab.model.config import ModelConfig
from fope_lab.stages.base import Resources, StageConfig
from fope_lab.stages.internal import SwapEmbedding
from fope_lab.stages.training import Finetune, FurtherTraining, Pretrain, TrainingConfig
from fope_lab.sweep.model_spec import ModelSpec

HEAD_DIM = 16
LENGTH = 64
"""What a longer training length becomes."""
LONGEST = 256
ENGLISH_PROMPT = 400
"""In tokens of the byte tokenizer: the least of the prompt, and some filler."""
LOCAL = {"text": "python-docs", "pairs": "python-docstrings", "chats": "python-docstrings"}
"""What is read in place of a corpus, by what it holds. The byte tokenizer writes no chats."""


def local(corpus: Corpus) -> Corpus:
    """A corpus that is always there."""
    return parse_corpus(LOCAL[corpus.kind], Path())


def small_model(config: ModelConfig) -> ModelConfig:
    """Two layers of two heads, and all that a model is beside its sizes."""
    return dataclasses.replace(
        config,
        num_layers=2,
        num_heads=2,
        num_kv_heads=2 if config.num_kv_heads == config.num_heads else 1,
        head_dim=HEAD_DIM,
        hidden_size=32,
        intermediate_size=64,
        vocab_size=ByteTokenizer().vocabulary_size,
    )


def small_length(length: int, train_length: int) -> int:
    """A length in the small stage, of which `train_length` is at most LENGTH."""
    return length if train_length <= LENGTH else max(8, length * LENGTH // train_length)


def small_embedding(embedding: Embedding, train_length: int) -> Embedding:
    """The embedding at the small length: log base is to log(length / 2π) as before."""
    small = embedding.canonical()
    short = small_length(train_length, train_length)
    base = getattr(embedding, "base", None)
    if base is not None and short != train_length:
        turns = math.log(short / (2 * math.pi)) / math.log(train_length / (2 * math.pi))
        small["base"] = base**turns
    if "transforms" in small:
        small["transforms"] = [_small_transform(one, train_length) for one in small["transforms"]]
    return parse_embedding(small)


def _small_transform(transform: Mapping[str, Any], train_length: int) -> dict[str, Any]:
    small = dict(transform)
    if small.get("original_length") is not None:
        small["original_length"] = small_length(small["original_length"], train_length)
    for option in ("short", "long"):  # one for each pair of the small head
        if option in small:
            small[option] = small[option][: HEAD_DIM // 2]
    return small


def small_stage(spec: StageConfig, model_spec: ModelSpec) -> StageConfig:
    """The stage itself, small."""
    first = model_spec.train_length
    changes: dict[str, Any] = {"resources": Resources()}
    if isinstance(spec, TrainingConfig):
        changes |= _small_training(spec, first)
    if isinstance(spec, Pretrain):
        changes |= {"model": small_model(model_spec.model)}
        changes |= {} if is_built_in(spec.tokenizer) else {"tokenizer": "byte"}
    if isinstance(spec, Pretrain | FurtherTraining | SwapEmbedding) and spec.embedding is not None:
        changes["embedding"] = small_embedding(spec.embedding, first)
    if isinstance(spec, Finetune):
        changes["tokenizer"] = None
    if isinstance(spec, Evaluation):
        changes |= _small_evaluation(spec, first)
    return dataclasses.replace(spec, **changes)


def _small_training(spec: TrainingConfig, first: int) -> dict[str, Any]:
    length = small_length(spec.data.length, first)
    mix = tuple(_small_source(one, first) for one in spec.data.mix)
    held_out = spec.train.validation_length
    held_out = held_out and min(LONGEST, small_length(held_out, first))
    train = dataclasses.replace(
        spec.train,
        tokens=2 * length,
        batch_tokens=2 * length,
        micro_batch_tokens=spec.train.micro_batch_tokens and length,
        validation_tokens=spec.train.validation_tokens and (held_out or length),
        validation_length=held_out,
    )
    rows = {"documents": spec.data.documents, "pack": spec.data.pack}
    return {"data": Data(length=length, mix=mix, **rows), "train": train}


def _small_source(source: Source, first: int) -> Source:
    """A source that is always there, with as large a share of a row as before."""
    task = source.task
    if isinstance(task, AlgorithmicTask):
        task = dataclasses.replace(task, longest=small_length(task.longest, first))
    return dataclasses.replace(source, task=task, corpus=source.corpus and local(source.corpus))


def _small_evaluation(spec: Evaluation, first: int) -> dict[str, Any]:
    """Less of whatever the evaluation has, by the names of its fields."""
    given = {each.name: getattr(spec, each.name) for each in dataclasses.fields(spec)}
    changes: dict[str, Any] = {name: local(corpus) for name, corpus in spec.corpora().items()}
    if "lengths" in given:
        english = given.get("form") == "english"  # such a prompt has a least length
        changes["lengths"] = (ENGLISH_PROMPT,) if english else _lengths(given["lengths"], first)
    changes |= {name: 2 for name in ("trials", "count") if name in given}
    if "tokens" in given:
        changes["tokens"] = 2 * max(changes.get("lengths", (LONGEST,))) + 1
    if given.get("stride") is not None:
        changes["stride"] = min(given["stride"], *changes.get("lengths", ()))
    if isinstance(spec, LMEval):
        changes["include_path"] = _small_tasks(spec)
    if "context_length" in given:
        changes |= {"context_length": 2048, "format": "plain"}
    if "analysis" in given:
        changes["analysis"] = _small_analysis(given["analysis"])
    return changes


@functools.cache
def _small_tasks(spec: LMEval) -> str:
    """A folder with tasks of the names and metrics of a stage's, whose data is there."""
    folder = Path(tempfile.mkdtemp())
    words = spec.by_words or (1,)
    rows = [{"text": "A context.", "length": end - 1} for end in words]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = {one.metric for task in all_tasks(spec.items) for one in task.metrics}
    code = f"def score(doc, results):\n    return dict.fromkeys({sorted(names)}, 0.5)\n"
    (folder / "scores.py").write_text(code)
    for task in all_tasks(spec.items):
        content = {
            "task": task.name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": "data.jsonl"}},
            "test_split": "test",
            "doc_to_text": "text",
            "doc_to_target": "text",
            "generation_kwargs": {"until": ["\n"], "max_gen_toks": 4},
            "metric_list": [
                {"metric": one.metric, "aggregation": "mean", "higher_is_better": True}
                for one in task.metrics
            ],
        }
        text = yaml.safe_dump(content) + "process_results: !function scores.score\n"
        (folder / f"{task.name}.yaml").write_text(text)
    return str(folder)


def _small_analysis(analysis: Analysis) -> Analysis:
    fields = {each.name for each in dataclasses.fields(analysis)}  # type: ignore[arg-type]
    small = {"length": LENGTH, "sequences": 2, "characters": " "}  # two passages have spaces
    small |= {name: 1 for name in ("layer", "head") if getattr(analysis, name, None)}
    return dataclasses.replace(analysis, **{n: small[n] for n in small.keys() & fields})  # type: ignore[type-var]


def _lengths(lengths: tuple[int, ...], first: int) -> tuple[int, ...]:
    """What is read, up to LONGEST: the same code reads more."""
    return tuple(sorted({min(LONGEST, small_length(length, first)) for length in lengths}))
