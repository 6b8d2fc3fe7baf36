"""Stages that no sweep file names: who needs them, and what their keys follow from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sweep_files import BASE, changed, keys, load, of, told, write

from fope_lab.stages import PrepareData

TRAINED = {"train": "bpe", "vocabulary": 1000, "corpus": "python-docs"}
WITH_TRAINED = changed(BASE, {"stages.pretrain.tokenizer": TRAINED})


def stage_keys(folder: Path, changes: dict[str, Any]) -> dict[str, str]:
    """The keys by the stages' names in the file; one prepare-data stage of several."""
    sweep = load(folder, changed(WITH_TRAINED, changes))
    return {stage.section: stage.key for stage in sweep.stages}


def test_a_trained_tokenizer_is_a_parent_of_what_starts_from_text(tmp_path: Path) -> None:
    sweep = load(tmp_path, WITH_TRAINED)
    assert sweep.stages[0].label == "train-tokenizer[bpe(1000,python-docs)]"
    key = sweep.stages[0].key
    for stage in sweep.stages[1:]:
        reads_text = stage.kind in ("prepare-data", "pretrain")
        assert (stage.parents.get("tokenizer") == key) == reads_text, stage.label
    [pretrain] = of(sweep, "pretrain")
    assert pretrain.spec.model.vocab_size == 1024
    assert pretrain.config["tokenizer"] == TRAINED | {"corpus": {"type": "python-docs"}}
    assert "prepare-data[c4,bpe(1000,python-docs),train]" in keys(sweep)


def test_keys_follow_from_the_tokenizers_corpus_and_options(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", "a text")
    from_file = {"stages.pretrain.tokenizer.corpus": {"files": "text.txt"}}
    one = stage_keys(tmp_path, from_file)
    assert stage_keys(tmp_path, from_file) == one
    write(text, "another")
    others = [
        stage_keys(tmp_path, from_file),
        stage_keys(tmp_path, from_file | {"stages.pretrain.tokenizer.vocabulary": 1001}),
        stage_keys(tmp_path, {"stages.pretrain.tokenizer": "byte"}),
        stage_keys(tmp_path, {"stages.pretrain.tokenizer": "gpt-neox"}),
    ]
    names = ("prepare-data", "pretrain", "extend", "finetune", "perplexity", "passkey")
    for name in names:
        assert len({found[name] for found in [one, *others]}) == 5, name
    assert len({found.get("train-tokenizer") for found in [one, *others[:2]]}) == 3


def test_a_grid_over_vocabularies_has_a_tokenizer_for_each(tmp_path: Path) -> None:
    grid = {"grid": {"pretrain.tokenizer.vocabulary": [300, 1000]}}
    sweep = load(tmp_path, {**WITH_TRAINED, **grid})
    assert len(of(sweep, "train-tokenizer")) == len(of(sweep, "pretrain")) == 2
    assert {s.spec.model.vocab_size for s in of(sweep, "pretrain")} == {384, 1024}


def test_gpt_neox_is_known_without_a_download(tmp_path: Path) -> None:
    sweep = load(tmp_path, changed(BASE, {"stages.pretrain.tokenizer": "gpt-neox"}))
    assert sweep.stages[0].label == "copy-tokenizer[gpt-neox]"
    [pretrain] = of(sweep, "pretrain")
    assert pretrain.spec.model.vocab_size == 50_304
    assert pretrain.parents["tokenizer"] == sweep.stages[0].key


def test_the_processors_of_own_stages_are_given_for_all(tmp_path: Path) -> None:
    given = {**WITH_TRAINED, "prepare": {"resources": {"cpus": 8}}}
    sweep = load(tmp_path, given)
    for stage in sweep.stages:
        own = stage.kind in ("prepare-data", "train-tokenizer")
        assert stage.spec.resources.cpus == (8 if own else 1), stage.label
    assert keys(sweep) == keys(load(tmp_path, WITH_TRAINED))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"prepare": {"resources": {"gpus": 1}}}, ["prepare.resources.gpus: unknown key 'gpus'"]),
        ({"stages.pretrain.tokenizer.vocabulary": 5},
         ["stages.pretrain.tokenizer.vocabulary: found 5, needs at least 258"]),
        ({"stages.pretrain.tokenizer.corpus": {"files": "none.txt"}},
         ["stages.pretrain.tokenizer.corpus.files: no file matches 'none.txt'"]),
        ({"stages.pretrain.data.pack": True},
         ["stages.pretrain.data.pack: has no effect: a stage of kind pretrain reads text"]),
        ({"stages.finetune.data.documents": "within"},
         ["stages.finetune.data.documents: has no effect: in a stage of kind finetune"]),
        ({"stages.pretrain.data": {"task": "passkey", "length": 64, "documents": "within"}},
         ["stages.pretrain.data.documents: has no effect: no corpus is read"]),
        ({"stages.pretrain.data": {"length": 64, "mix": [{"corpus": "c4", "pack": True}]}},
         ["stages.pretrain.data.mix[0].pack: unknown option 'pack' of a source "
         "(allowed: corpus, weight)"]),
        ({"stages.finetune.tokenizer": "byte"},
         ["stages.finetune.tokenizer: the ids of byte differ from those of the model's own "]),
        ({"stages.copy-tokenizer": BASE["stages"]["pretrain"]},
         ["stages.copy-tokenizer: this name is reserved for a preparation stage"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_at_its_place(
    tmp_path: Path, changes: dict[str, Any], expected: list[str]
) -> None:
    found = [line.partition(" ")[2] for line in told(tmp_path, changed(WITH_TRAINED, changes))]
    assert len(found) == len(expected)
    for line, start in zip(sorted(found), sorted(expected), strict=True):
        assert line.startswith(start), line


def test_chats_need_a_tokenizer_that_can_write_them(tmp_path: Path) -> None:
    corpus = {"type": "dataset-chat", "dataset": "a/b", "revision": "0" * 40}
    content = changed(BASE, {"stages.finetune.data": {"corpus": corpus, "length": 128}})
    [found] = told(tmp_path, content)
    assert found.endswith(
        "stages.finetune.data.corpus: the corpus a/b holds chats, and the tokenizer byte has no "
        "chat template to write them in"
    )
    write(tmp_path / "chatty" / "tokenizer.json", "{}")
    write(tmp_path / "chatty" / "tokenizer_config.json", json.dumps({"chat_template": "x"}))
    changes = {"stages.pretrain.tokenizer": "./chatty", "stages.pretrain.model.vocab_size": 512}
    sweep = load(tmp_path, changed(content, changes))
    [prepare] = [s for s in of(sweep, "prepare-data") if "a/b" in s.label]
    assert isinstance(prepare.spec, PrepareData)
    assert prepare.spec.corpus.kind == "chats"


def test_fine_tuning_may_bring_a_tokenizer_that_can(tmp_path: Path) -> None:
    write(tmp_path / "chatty" / "tokenizer.json", "{}")
    write(tmp_path / "chatty" / "chat_template.jinja", "{{ messages }}")
    corpus = {"type": "dataset-chat", "dataset": "a/b", "revision": "0" * 40}
    write(tmp_path / "plain" / "tokenizer.json", "{}")
    changes = {
        "stages.pretrain.tokenizer": "plain",
        "stages.pretrain.model.vocab_size": 999,
        "stages.finetune.data": {"corpus": corpus, "length": 128},
        "stages.finetune.tokenizer": "chatty",
        "stages.asked": {**BASE["stages"]["perplexity"], "from": "finetune"},
    }
    sweep = load(tmp_path, changed(BASE, changes))
    read = {s.section: s.model_spec.tokenizer for s in sweep.stages if s.model_spec}
    plain = str(tmp_path / "plain")
    assert {name for name, one in read.items() if one != plain} == {"finetune", "asked"}
    before = keys(sweep)
    write(tmp_path / "chatty" / "chat_template.jinja", "{{ messages[0] }}")
    after = keys(load(tmp_path, changed(BASE, changes)))
    changed_ones = {name.partition("[")[0] for name, key in after.items() if before[name] != key}
    assert changed_ones == {"prepare-data", "finetune", "asked"}
    [found] = told(tmp_path, changed(BASE, {**changes, "stages.finetune.tokenizer": "gpt-neox"}))
    assert (
        "finetune.tokenizer: gpt-neox has 50304 tokens, but the model has a vocabulary of 999"
        in found
    )


def test_how_documents_become_rows_is_in_the_key_of_the_training_alone(tmp_path: Path) -> None:
    before = load(tmp_path, BASE)
    after = load(
        tmp_path,
        changed(
            BASE, {"stages.pretrain.data.documents": "within", "stages.finetune.data.pack": True}
        ),
    )
    same = {name for name, key in keys(before).items() if keys(after)[name] == key}
    assert {name.partition("[")[0] for name in same} == {"prepare-data"}
    written_out = changed(
        BASE, {"stages.pretrain.data.documents": "across", "stages.finetune.data.pack": False}
    )
    assert keys(load(tmp_path, written_out)) == keys(before)
