"""Pretrain, extend and finetune as stages: what they start from, train on and leave behind."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from said import TIMINGS, said
from sections import read_section
from torch import Tensor

from fope_lab.data.corpora.base import Corpus
from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.mixture import TrainingData
from fope_lab.data.packing import write_packed
from fope_lab.data.rows import IGNORED
from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.embeddings import build_embedding
from fope_lab.model import ModelConfig, load_model, read_config
from fope_lab.model.decoder import Decoder
from fope_lab.stages.training import Extend, Finetune, Pretrain, TrainingConfig
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.store.writer import RunWriter
from trainers.stage import run
from trainers.step import StepRunner
from trainers.workers import WorkerGroup

BYTES = load_tokenizer("byte")
SIZES = ModelConfig(
    num_layers=2, num_heads=2, head_dim=16, intermediate_size=32, vocab_size=BYTES.vocabulary_size
)
LENGTH = 16
BASE = 129.0  # keeps half of the pairs above the floor, as in the paper, at a short length
PAIRS = [("capital of France?", "Paris"), ("2+2=", "4"), ("one two", "three four")]


class Questions(Corpus):
    """Three pairs."""

    kind = "pairs"

    def identity(self) -> dict[str, Any]:
        """Always the same."""
        return {"type": "questions"}

    def documents(self, split: str) -> Iterator[tuple[str, str]]:
        """All of them, whatever the split."""
        return iter(PAIRS)


@dataclass
class Bench:
    """A store with prepared data, in which stages run as the trial would run them."""

    root: Path

    def folder(self, kind: str, key: str) -> StageFolder:
        """A stage's folder."""
        return Store(self.root / "store").folder(kind, key)

    def run(
        self, stage: TrainingConfig, key: str, parent: Path | None = None
    ) -> tuple[dict[str, Any], Path]:
        """Result and final checkpoint of a stage."""
        folder = self.folder(stage.kind, key)
        with folder.begin("test", {}) as attempt:
            attempt.finish(self.work(stage, attempt.writer, parent))
        checkpoint = folder.checkpoint()
        return said(folder.result()), checkpoint.path

    def work(self, stage: TrainingConfig, writer: RunWriter, parent: Path | None) -> dict[str, Any]:
        """What the stage's function returns."""
        name = "pairs" if stage.kind == "finetune" else "text"
        parents = {"data.0": self.root / name}
        if parent is not None:
            parents["from"] = parent
        return run(stage, writer, parents)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    root = tmp_path_factory.mktemp("bench")
    for name in ("text", "pairs"):
        (root / name).mkdir()
    (root / "text.txt").write_text("The quick brown fox jumps over the lazy dog.\n\n" * 60)
    text = parse_corpus({"files": str(root / "text.txt")}, root)
    write_packed(root / "text", text, BYTES, "train")
    write_packed(root / "pairs", Questions(), BYTES, "train")
    return Bench(root)


def training(length: int, steps: int, **train: Any) -> dict[str, Any]:
    """The sections `train` and `data` of a stage of four rows a step, from text and passkeys."""
    settings = {"tokens": steps * 4 * length, "batch_tokens": 4 * length, "learning_rate": 1e-2}
    mix = [{"corpus": {"files": str(Path(__file__))}}, {"task": "passkey", "digits": 3}]
    return {"train": settings | train, "data": {"length": length, "mix": mix}}


def pretrain_stage(embedding: Any, steps: int = 6, seed: int = 0, **train: Any) -> Pretrain:
    stage = read_section(
        Pretrain,
        {
            "kind": "pretrain",
            "model": "tiny",
            "embedding": embedding,
            "seed": seed,
            **training(LENGTH, steps, **train),
        },
    )
    return dataclasses.replace(stage, model=SIZES)  # as the plan resolves it


def extend_stage(embedding: Any, seed: int = 0, **train: Any) -> Extend:
    return read_section(
        Extend,
        {
            "kind": "extend",
            "from": "pretrain",
            "embedding": embedding,
            "seed": seed,
            **training(2 * LENGTH, 3, **train),
        },
    )


def finetune_stage(steps: int = 3, **train: Any) -> Finetune:
    sections = training(2 * LENGTH, steps, **train)
    sections["data"] = {"length": 2 * LENGTH, "corpus": "python-docstrings"}
    return read_section(Finetune, {"kind": "finetune", "from": "pretrain", **sections})


def weights(checkpoint: Path) -> dict[str, Tensor]:
    return load_model(checkpoint).state_dict()


def assert_same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.fixture(scope="module")
def parents(bench: Bench) -> dict[str, Path]:
    """A pretrained checkpoint for each embedding."""
    specs = {
        "rope": {"type": "rope", "base": BASE},
        "fope": {"type": "fope", "base": BASE},
        "alibi": "alibi",
    }
    return {name: bench.run(pretrain_stage(spec), name)[1] for name, spec in specs.items()}


def test_pretrain_says_what_it_did(bench: Bench, parents: dict[str, Path]) -> None:
    result = said(bench.folder("pretrain", "rope").result())
    counted = result.pop("parameters")
    assert counted["total"] == counted["body"] + counted["head"] + counted["embedding"]
    assert counted["total"] == sum(p.numel() for p in load_model(parents["rope"]).parameters())
    assert counted["head"] == counted["embedding"] == BYTES.vocabulary_size * SIZES.hidden_size
    assert (result["steps"], result["tokens"]) == (6, 6 * 4 * LENGTH)
    assert set(result) == {"loss", "steps", "tokens", "device", *TIMINGS}
    config = read_config(parents["rope"])
    assert (config.train_length, config.context_length) == (LENGTH, LENGTH)
    assert (config.tokenizer, config.model.vocab_size) == ("byte", BYTES.vocabulary_size)


def test_the_seed_decides_the_weights(bench: Bench, parents: dict[str, Path]) -> None:
    spec = {"type": "fope", "base": BASE}
    torch.manual_seed(1)
    _, again = bench.run(pretrain_stage(spec), "again")
    assert_same(weights(again), weights(parents["fope"]))
    _, other = bench.run(pretrain_stage(spec, seed=1), "other")
    ours, theirs = weights(other), weights(again)
    for name in ("lm_head.weight", "position_embeddings.0.cos_coef"):
        assert not torch.equal(ours[name], theirs[name])


def still(stage: Callable[..., TrainingConfig], *arguments: Any, **options: Any) -> TrainingConfig:
    """A stage whose steps are too small to change a float32 weight: it shows the start."""
    return stage(*arguments, learning_rate=1e-30, **options)


@pytest.mark.parametrize(
    ("name", "embedding"),
    [
        ("rope", {"type": "yarn", "base": BASE, "factor": 2}),
        ("fope", {"type": "fope-yarn", "base": BASE, "factor": 2}),
        ("alibi", None),
        ("fope", None),
    ],
)
def test_extend_starts_from_all_that_its_parent_has(
    bench: Bench, parents: dict[str, Path], name: str, embedding: Any
) -> None:
    stage = still(extend_stage, embedding)
    result, checkpoint = bench.run(stage, f"still-{name}-{embedding is None}", parents[name])
    assert_same(weights(checkpoint), weights(parents[name]))  # FoPE's coefficients among them
    config, before = read_config(checkpoint), read_config(parents[name])
    assert (config.train_length, config.context_length) == (LENGTH, 2 * LENGTH)
    assert config.embedding == (before.embedding if embedding is None else stage.embedding)
    assert result["tokens"] == 3 * 4 * 2 * LENGTH


def test_extending_rope_to_fope_draws_coefficients_from_its_own_seed(
    bench: Bench, parents: dict[str, Path]
) -> None:
    stage = still(extend_stage, {"type": "fope", "base": BASE}, seed=7)
    _, checkpoint = bench.run(stage, "rope-to-fope", parents["rope"])
    model: Decoder = load_model(checkpoint)
    for layer, module in enumerate(model.position_embeddings):
        expected = build_embedding(
            stage.embedding,
            head_dim=SIZES.head_dim,
            num_heads=SIZES.num_heads,
            train_length=LENGTH,  # the floor of the original length
            layer=layer,
            seed=7,
        )
        assert torch.equal(module.cos_coef, expected.cos_coef)
        assert torch.equal(module.sin_coef, expected.sin_coef)


def test_the_seed_decides_the_order_of_the_data(bench: Bench, parents: dict[str, Path]) -> None:
    """From one parent without new coefficients, only the data can tell the seeds apart."""
    found = [
        weights(bench.run(extend_stage(None, seed), f"order-{seed}-{number}", parents["rope"])[1])
        for number, seed in enumerate((0, 0, 1))
    ]
    assert_same(found[1], found[0])
    assert not torch.equal(found[2]["lm_head.weight"], found[0]["lm_head.weight"])


def test_finetune_keeps_the_embedding(bench: Bench, parents: dict[str, Path]) -> None:
    result, checkpoint = bench.run(finetune_stage(), "tuned", parents["fope"])
    config, before = read_config(checkpoint), read_config(parents["fope"])
    assert config.embedding == before.embedding
    assert (config.train_length, config.context_length) == (LENGTH, 2 * LENGTH)
    assert result["loss"] > 0
    files = {path.name for path in checkpoint.iterdir()}
    assert files == {"config.json", "model.safetensors", "training.json", "manifest.json"}
    assert json.loads((checkpoint / "training.json").read_text())["step"] == 3


def test_only_the_answer_has_a_gradient(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss depends on the states that predict an answer's tokens and its end, and no others."""
    stage = finetune_stage()
    data = TrainingData(
        stage.data, {"data.0": bench.root / "pairs"}, BYTES, batch_size=len(PAIRS), seed=0
    )
    batch = data.batch(0)  # one epoch: each pair once
    model = Decoder(SIZES, "rope", train_length=LENGTH)
    states = torch.randn(*batch.input_ids.shape, SIZES.hidden_size, requires_grad=True)
    monkeypatch.setattr(model, "hidden", lambda *ids, **others: states)
    settings = stage.train
    StepRunner(model, settings, torch.device("cpu"), WorkerGroup()).backward(batch)
    touched = (states.grad != 0).any(-1)
    found = set()
    for row, ids, labels in zip(touched, batch.input_ids, batch.labels, strict=True):
        prompt, answer = next(
            pair for pair in PAIRS if ids[: len(pair[0])].tolist() == [*pair[0].encode()]
        )
        found.add(prompt)
        first, last = len(prompt) - 1, len(prompt) + len(answer) - 1
        assert row.nonzero().flatten().tolist() == list(range(first, last + 1))
        assert labels[first : last + 1].tolist() == [*answer.encode(), BYTES.eos_id]
        assert (labels[~row] == IGNORED).all()
    assert found == {prompt for prompt, _ in PAIRS}
