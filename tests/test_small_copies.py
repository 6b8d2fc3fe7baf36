"""A small copy of each stage of each shipped sweep really runs: a training one step, an evaluation
a little text, by the code that runs the stage itself, without Ray. Nothing is downloaded."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from shipped import FILES, ROOT, by_key, method, named, sweep_of
from shrunken import small_embedding, small_length, small_model, small_stage

from fope_lab.analysis import Analysis
from fope_lab.config.roles import candidate_role
from fope_lab.data.corpora import python
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.packing import write_packed
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.embeddings import build_embedding, parse_embedding
from fope_lab.evaluation.base import Evaluation
from fope_lab.model import Decoder, load_model, save_model
from fope_lab.papers.fope.olmo_tasks import DownstreamQuestion, DownstreamTask
from fope_lab.papers.resonance import leval
from fope_lab.papers.resonance.leval_tasks import LEvalQuestion
from fope_lab.stages.base import StageConfig, load_function
from fope_lab.stages.internal import Select, SwapEmbedding
from fope_lab.stages.key import config_json, digest
from fope_lab.stages.training import Extend, TrainingConfig
from fope_lab.store.root import Store
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.model_spec import ModelSpec


@pytest.mark.parametrize("name", ["rope", "fope"])
@pytest.mark.parametrize("train_length", [512, 2048, 8192])
def test_a_small_copy_keeps_the_geometry(name: str, train_length: int) -> None:
    """As many pairs of it turn round within the small length, of as many pairs."""
    embedding = parse_embedding(name, at=())
    small = small_embedding(embedding, train_length)
    shares = []
    for one, length in (
        (embedding, train_length),
        (small, small_length(train_length, train_length)),
    ):
        frequencies = build_embedding(one, head_dim=128, num_heads=1, train_length=length).inv_freq
        assert frequencies is not None
        shares.append(int((frequencies >= 2 * math.pi / length * (1 - 1e-6)).sum()))
    assert abs(shares[0] - shares[1]) <= 1


class Workshop:
    """Runs small copies of stages, each different one once, with the parents that they need.

    Trainings differ in the model, in the embedding's method and in any other setting. Evaluations
    differ in no number; each has all of its options once, and is of each embedding's method once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._store = folder, Store(folder / "store")
        self._packed: dict[tuple[str, str], Path] = {}
        self._done: dict[str, Path] = {}
        self._evaluated: set[str] = set()

    def run(self, stage: Stage) -> Path:
        """The checkpoint of the small copy of a stage, or its folder if it leaves none."""
        assert stage.model_spec is not None
        if isinstance(stage.spec, Select):
            return self.select(stage, stage.spec)
        spec = small_stage(stage.spec, stage.model_spec)
        parents = {}
        if "from" in stage.parents:
            parents["from"] = self.run(by_key()[stage.parents["from"]])
        elif stage.checkpoints:
            parents["from"] = self.published(stage.model_spec)
        asked = {name: item for name, item in config_json(spec).items() if name != "from"}
        if isinstance(spec, TrainingConfig):
            asked |= {"embedding": method(asked["embedding"]), "parent": str(parents.get("from"))}
        else:
            asked = method(asked)
        embedding = method(stage.model_spec.embedding.canonical())
        key = digest([asked, embedding])
        if isinstance(spec, Evaluation):  # from which nothing starts
            shown = {digest(asked), digest([spec.kind, embedding])}
            if shown <= self._evaluated:
                return self._folder
            self._evaluated |= shown
        if key not in self._done:
            self._done[key] = self._really(spec, key, parents)
        return self._done[key]

    def select(self, stage: Stage, spec: Select) -> Path:
        """The checkpoint of a selection, in which each value has the same model for all seeds."""
        parents: dict[str, Path] = {}
        for i, roles in enumerate(spec.roles()):
            candidate = by_key()[stage.parents[candidate_role(i, spec.seed)]]
            parents |= dict.fromkeys(roles, self.run(candidate))
        key = digest([config_json(spec), {role: str(path) for role, path in parents.items()}])
        if key not in self._done:
            self._done[key] = self._really(spec, key, parents)
        return self._done[key]

    def _really(self, spec: StageConfig, key: str, parents: dict[str, Path]) -> Path:
        roles = dict(parents)
        if isinstance(spec, TrainingConfig):
            for i, source in enumerate(spec.data.mix):
                if source.corpus is not None:
                    roles[f"data.{i}"] = self._pack(source.corpus, "train")
                    roles[f"validation.{i}"] = self._pack(source.corpus, "validation")
        else:
            for i, corpus in enumerate(spec.corpora().values()):
                roles[f"data.{i}"] = self._pack(corpus, "validation")
        folder = self._store.folder(spec.kind, key)
        work = load_function(type(spec).entry_point)
        with folder.begin("test", {"config": config_json(spec)}) as attempt:
            attempt.finish(work(spec, attempt.writer, roles))
        logged: dict[str, set[int]] = {}
        for row in folder.rows():
            for name, value in row.values.items():
                assert math.isfinite(value), name
                logged.setdefault(name, set()).add(row.step)
        for measure in spec.metrics():
            assert measure.name in logged
            assert logged[measure.name] >= set(measure.xs or ()), measure
        checkpoint = folder.checkpoint()
        return folder.path if checkpoint is None else checkpoint.path

    def _pack(self, corpus: Corpus, split: Any) -> Path:
        place = (corpus.name, split)
        if place not in self._packed:
            folder = self._folder / "-".join(place)
            folder.mkdir()
            write_packed(folder, corpus, ByteTokenizer(), split)
            self._packed[place] = folder
        return self._packed[place]

    def published(self, model_spec: ModelSpec) -> Path:
        """A model of the hub, small and untrained, with RoPE."""
        config = small_model(model_spec.model)
        folder = self._folder / digest(dataclasses.asdict(config))
        if not folder.is_dir():
            folder.mkdir()
            first = model_spec.train_length
            length = small_length(first, first)
            rope = small_embedding(parse_embedding("rope", at=()), first)
            save_model(
                folder,
                Decoder(config, rope, train_length=length, seed=0),
                context_length=length,
                tokenizer="byte",
            )
        return folder


ABOUT_IT = "Is it so? Answer this question based on the world described in the document."
QUESTION = DownstreamQuestion(((" It is one.", " Two"), (" It is one.", " Three")), 1, 0)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    for file in FILES:  # they are cached for all tests, so none may be read with the patches
        sweep_of(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)  # nothing here outlives the test
        sources = [Path(module.__file__).read_bytes() for module in (dataclasses, functools)]
        patch.setattr(python, "standard_library", lambda corpus: sources)
        # The questions of benchmarks are not here, and answers of a model that knows nothing are
        # as long as they may be.
        patch.setattr(DownstreamTask, "questions", lambda task, store: [QUESTION])
        asked = LEvalQuestion("A document.", ABOUT_IT, "A")
        patch.setattr(leval, "read_questions", lambda files, task: [asked])
        patch.setattr(leval, "MAX_NEW_TOKENS", 4)
        # Every figure is drawn in papers/test_every_analysis.py, from arrays of such models.
        patch.setattr(Analysis, "svg", lambda analysis, arrays: "<svg></svg>")
        yield Workshop(tmp_path_factory.mktemp("workshop"))


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_small_copy_of_every_stage_runs(file: Path, workshop: Workshop) -> None:
    """And logs all that claims, tables and figures may be about."""
    stages = [stage for stage in sweep_of(file).stages if stage.model_spec is not None]
    first = min((stage.seed for stage in stages if stage.seed is not None), default=None)
    for stage in stages:
        if stage.seed in (None, first):  # a seed changes no code
            workshop.run(stage)


def test_what_the_paper_did_not_fine_tune_keeps_its_weights(workshop: Workshop) -> None:
    """Resonance RoPE, Table 2: NTK changes the frequencies of a chat model and nothing else."""
    stages = sweep_of(ROOT / "resonance" / "table2.yaml").stages
    extended = [stage for stage in stages if stage.section == "extend"]
    assert {type(stage.spec) for stage in extended} == {SwapEmbedding, Extend}
    for stage in extended:
        assert stage.model_spec is not None
        before = load_model(workshop.published(stage.model_spec)).state_dict()
        if isinstance(stage.spec, Extend):
            # A schedule that ends at nothing would hide the rate in a training of one step.
            train = dataclasses.replace(stage.spec.train, schedule="constant", decay=None)
            trained = dataclasses.replace(stage, spec=dataclasses.replace(stage.spec, train=train))
        else:
            trained = stage
        after = load_model(workshop.run(trained)).state_dict()
        same = all(torch.equal(after[name], before[name]) for name in before)
        assert same is isinstance(stage.spec, SwapEmbedding), stage.label
