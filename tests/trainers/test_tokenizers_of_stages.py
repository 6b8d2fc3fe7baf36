"""From a sweep file that trains its tokenizer to what an evaluation reads, without Ray."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from said import said
from transformers import PreTrainedTokenizerFast

from fope_lab.data.packing import PackedCorpus
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.recipe import TrainedTokenizer, parse_tokenizer
from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.model import read_config
from fope_lab.orchestration.trial import Order, run_until_ended
from fope_lab.store.root import Store
from fope_lab.sweep import Sweep, load_sweep
from trainers.stage import run

TRAIN = {"tokens": 640, "batch_tokens": 320, "learning_rate": 1e-3}
SWEEP: dict[str, Any] = {
    "name": "own",
    "stages": {
        "pretrain": {
            "kind": "pretrain",
            "model": {"num_layers": 1, "num_heads": 2, "head_dim": 8, "intermediate_size": 16},
            "embedding": "rope",
            "tokenizer": {"train": "bpe", "vocabulary": 400, "corpus": {"files": "text.txt"}},
            "data": {"files": "text.txt", "length": 32, "documents": "within"},
            "train": {**TRAIN, "validate_every": 1, "validation_tokens": 64},
        },
        "finetune": {
            "kind": "finetune",
            "from": "pretrain",
            "data": {
                "corpus": {"type": "dataset-pairs", "dataset": "./pairs"},
                "length": 32,
                "pack": True,
            },
            "train": TRAIN,
        },
        "chats": {
            "kind": "finetune",
            "from": "pretrain",
            "tokenizer": "./chatty",
            "data": {
                "corpus": {"type": "dataset-chat", "dataset": "./chats"},
                "length": 64,
                "pack": True,
            },
            "train": TRAIN,
        },
        "perplexity": {
            "kind": "perplexity",
            "from": "finetune",
            "corpus": {"files": "text.txt"},
            "lengths": [8],
        },
    },
}


CHAT = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "The sky."}]
TEMPLATE = (
    "{% for one in messages %}{{ one.role }}:\n{{ one.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:\n{% endif %}"
)


def write_chatty(folder: Path) -> None:
    """What the sweep's own tokenizer will be, with a chat template."""
    recipe = parse_tokenizer(SWEEP["stages"]["pretrain"]["tokenizer"], folder)
    assert isinstance(recipe, TrainedTokenizer)
    recipe.write(folder / "trained.json")
    chatty = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "trained.json"), eos_token="<|endoftext|>", pad_token="<|pad|>"
    )
    chatty.chat_template = TEMPLATE
    chatty.save_pretrained(folder / "chatty")


def write_inputs(folder: Path) -> Path:
    """The sweep file and what it reads."""
    (folder / "chats").mkdir()
    line = json.dumps({"messages": CHAT}) + "\n"
    (folder / "chats" / "rows.jsonl").write_text(line * 40)
    text = "\n\n".join(f"Paragraph {i} is about the number {i * i}." for i in range(300))
    (folder / "text.txt").write_text(text)
    write_chatty(folder)
    (folder / "pairs").mkdir()
    rows = ({"prompt": f"What is {i}?", "answer": f"A number, {'x' * i}"} for i in range(80))
    (folder / "pairs" / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(SWEEP))
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Sweep]:
    """The sweep, all of whose stages ran."""
    folder = tmp_path_factory.mktemp("own")
    store, sweep = Store(folder / "store"), load_sweep(write_inputs(folder))
    by_key = {stage.key: stage for stage in sweep.stages}
    for stage in sweep.stages:
        state = run_until_ended(Order(stage.key, by_key, "me"), store)
        assert state.is_done, (stage.label, state.reason)
    return store, sweep


def checkpoint(done: tuple[Store, Sweep], name: str) -> Path:
    """What the first stage of a name left."""
    store, sweep = done
    stage = next(stage for stage in sweep.stages if stage.section == name)
    return store.folder(stage.kind, stage.key).checkpoint().path


def test_all_read_the_tokenizer_that_was_trained(done: tuple[Store, Sweep]) -> None:
    trained = load_tokenizer(str(checkpoint(done, "train-tokenizer") / "tokenizer.json"))
    assert trained.vocabulary_size == 512
    for kind in ("pretrain", "finetune"):
        config = read_config(checkpoint(done, kind))
        assert config.model.vocab_size == 512
        assert load_tokenizer(config.tokenizer).identity() == trained.identity()
    packed = PackedCorpus(checkpoint(done, "prepare-data"), {"tokenizer": trained.identity()})
    assert trained.decode(packed.tokens[:40].tolist()).startswith("Paragraph 0 is about the num")


def test_a_moved_checkpoint_is_a_parent_with_its_tokenizer(
    done: tuple[Store, Sweep], tmp_path: Path
) -> None:
    def keys(folder: Path) -> list[str]:
        shutil.copytree(checkpoint(done, "pretrain"), folder / "model")
        stage = {**SWEEP["stages"]["perplexity"], "from": "./model", "corpus": "python-docs"}
        path = folder / "sweep.yaml"
        path.write_text(yaml.safe_dump({"name": "x", "stages": {"perplexity": stage}}))
        return [stage.key for stage in load_sweep(path).stages]

    one = keys(tmp_path / "one")
    assert len(one) == 2
    assert keys(tmp_path / "other") == one


def test_a_result_says_what_became_of_the_examples(done: tuple[Store, Sweep]) -> None:
    store, sweep = done
    [stage] = [stage for stage in sweep.stages if stage.section == "finetune"]
    result = said(store.folder("finetune", stage.key).result())
    [examples] = result["examples"]
    assert examples["examples"] + examples["dropped"] == 72  # of 80, eight are held out
    assert examples["dropped"] > 0
    assert 0 < examples["fill"] < 1


def test_chats_are_learnt_in_the_template_that_was_brought(done: tuple[Store, Sweep]) -> None:
    store, sweep = done
    [stage] = [stage for stage in sweep.stages if stage.section == "chats"]
    folder = store.folder("finetune", stage.key)
    found, result = folder.checkpoint(), said(folder.result())
    assert result["examples"][0]["examples"] == 36
    tokenizer = load_tokenizer(read_config(found.path).tokenizer)
    [(ids, learnt)] = tokenizer.encode_chats([CHAT])
    answer = tokenizer.decode([token for token, one in zip(ids, learnt, strict=True) if one])
    assert answer == "The sky.<|endoftext|>"
    prepared = store.folder("prepare-data", stage.parents["data.0"]).checkpoint()
    assert PackedCorpus(prepared.path, {}).tokens[: len(ids)].tolist() == ids


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (600, r"the tokenizer has 10\d\d tokens, and the model of .* 512"),
        (0, "has other ids"),  # of the right size, it would be learnt without a word
    ],
)
def test_a_tokenizer_that_does_not_fit_the_model_is_refused(
    done: tuple[Store, Sweep], tmp_path: Path, more: int, message: str
) -> None:
    content = json.loads((checkpoint(done, "train-tokenizer") / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    one, other = list(vocabulary)[-2:]
    if not more:
        vocabulary |= {one: vocabulary[other], other: vocabulary[one]}
    vocabulary |= {f"more{i}": len(vocabulary) + i for i in range(more)}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    [stage] = [stage for stage in done[1].stages if stage.section == "chats"]
    spec = dataclasses.replace(stage.spec, tokenizer=str(tmp_path / "tokenizer.json"))
    folder = Store(tmp_path / "store").folder("finetune", "key")
    with pytest.raises(DataError, match=message), folder.begin("test", {}) as attempt:
        run(spec, attempt.writer, {"from": checkpoint(done, "pretrain")})


def test_a_changed_corpus_of_a_tokenizer_is_refused(tmp_path: Path) -> None:
    sweep = load_sweep(write_inputs(tmp_path))
    (tmp_path / "text.txt").write_text("something else")
    store = Store(tmp_path / "store")
    stage = sweep.stages[0]
    assert run_until_ended(Order(stage.key, {stage.key: stage}, "me"), store).status == "failed"
    failure = store.folder(stage.kind, stage.key).attempts.newest().end
    assert "has other content here than when and where the sweep was planned" in failure["error"]
