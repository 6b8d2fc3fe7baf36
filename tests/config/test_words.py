"""The words of other tools: each leads to a word of ours that there is, where that is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweep_files import BASE, changed, load, told, write

from fope_lab.config.options import entry_of, options_of
from fope_lab.config.words import FOREIGN, OTHER_WORDS, unknown_word
from fope_lab.data.corpora.registry import CORPORA
from fope_lab.data.recipe import DATA, TASKS, WEIGHT
from fope_lab.data.tokenizers.recipe import TRAINED_TOKENIZERS
from fope_lab.embeddings import EMBEDDINGS
from fope_lab.embeddings.spec import FREQUENCY_TRANSFORMS
from fope_lab.model.config import ModelConfig
from fope_lab.stages.base import STAGE_TYPES, Resources
from fope_lab.stages.training import TrainSettings
from fope_lab.sweep.sweep_file import SweepFile


def our_words() -> set[str]:
    words = {"kind", "type", "claims"}
    for registry in (EMBEDDINGS, CORPORA, TASKS, FREQUENCY_TRANSFORMS, TRAINED_TOKENIZERS):
        words |= set(registry.all_names())
        for entry in registry.entries.values():
            words |= entry.options.keys()
    for kind in STAGE_TYPES.all().values():
        words |= options_of(kind).keys()
    for part in (TrainSettings, Resources, ModelConfig, SweepFile):
        words |= entry_of(part).options.keys()
    words |= {"cosine", "wsd", "bfloat16", "float32", "fsdp", "embedding", "adamw"}
    return words | set(STAGE_TYPES.all()) | DATA.options.keys() | WEIGHT.options.keys()


def test_every_word_that_is_hinted_at_is_ours() -> None:
    assert OTHER_WORDS.keys() <= our_words()


def test_no_word_is_written_twice() -> None:
    for ours, others in OTHER_WORDS.items():
        words = others.split()
        assert len(set(words)) == len(words), ours
        assert ours not in words


EXAMPLES: list[tuple[str, Any, str]] = [
    ("stages.pretrain.embedding", {"type": "rope", "theta": 500}, "'base'"),
    ("stages.pretrain.embedding", {"type": "rope", "rope_theta": 500}, "'base'"),
    ("stages.pretrain.embedding", {"type": "yarn", "factor": 4, "L": 64}, "'original_length'"),
    ("stages.pretrain.embedding", {"type": "pi", "scale": 4}, "'factor'"),
    ("stages.pretrain.embedding", {"type": "pi", "s": 4}, "'factor'"),
    ("stages.pretrain.embedding", {"type": "rope", "partial_rotary_factor": 1}, "'fraction'"),
    ("stages.pretrain.embedding", "none", "'nope'"),
    ("stages.pretrain.embedding", "linear", "'pi'"),
    ("stages.pretrain.model", {"num_layers": 2, "n_head": 2, "head_dim": 8}, "'num_heads'"),
    ("stages.pretrain.data", {"corpus": "c4", "seq_len": 64}, "'length'"),
    ("stages.pretrain.data", {"corpus": "c4", "block_size": 64}, "'length'"),
    ("stages.pretrain.train.lr", 1e-3, "'learning_rate'"),
    ("stages.pretrain.train.max_grad_norm", 1, "'gradient_clip'"),
    ("stages.pretrain.train.batch_size", 8, "'batch_tokens'"),
    ("stages.pretrain.train.schedule", "cos", "'cosine'"),
    ("stages.pretrain.train.precision", "bf16", "'bfloat16'"),
    ("stages.pretrain.resources", {"num_gpus": 1}, "'gpus'"),
    ("stages.perplexity.context_lengths", [64], "'lengths'"),
    ("stages.perplexity.kind", "ppl", "'perplexity'"),
    ("stages.extend.base_model", "pretrain", "'from'"),
    ("parameters", {}, "'grid'"),
    ("claims", [], "'report'"),
    ("stages.perplexity.corpus", {"path": "x.txt"}, "'files'"),
    ("stages.pretrain.embedding", {"rope_type": "yarn"}, "'type'"),
]


@pytest.mark.parametrize(("path", "value", "ours"), EXAMPLES)
def test_the_fields_other_names_lead_to_ours(
    path: str, value: Any, ours: str, tmp_path: Path
) -> None:
    first = told(tmp_path, changed(BASE, {path: value}))
    assert any(f"did you mean {ours}?" in line for line in first), first


def test_a_path_in_place_of_a_corpus_is_told_how_to_write_it(tmp_path: Path) -> None:
    [line] = told(tmp_path, changed(BASE, {"stages.perplexity.corpus": "texts/*.txt"}))
    assert "unknown corpus 'texts/*.txt', needs {files: texts/*.txt} if these are files" in line


def test_a_misspelt_word_is_still_the_nearest() -> None:
    assert unknown_word((), "key", "lenght", ["length", "mix"]).nearest == "length"
    assert unknown_word((), "key", "theta", ["factor"]).nearest is None


@pytest.mark.parametrize(("what", "keys"), FOREIGN.items())
def test_a_file_of_another_tool_is_called_what_it_is(
    what: str, keys: frozenset[str], tmp_path: Path
) -> None:
    [line] = told(tmp_path, dict.fromkeys(sorted(keys), "x"))
    expected = f"looks like a {what}, needs a sweep, which begins with name and stages"
    assert expected in line


def test_top_level_keys_that_begin_with_x_hold_anchors(tmp_path: Path) -> None:
    text = """
name: anchors
x-train: &train {tokens: 100_000, batch_tokens: 2048, learning_rate: 1e-3}
stages:
  pretrain: {kind: pretrain, model: {scale: tiny}, embedding: rope,
             data: {corpus: c4, length: 64}, train: *train}
"""
    plain = changed({"name": "anchors", "stages": {"pretrain": BASE["stages"]["pretrain"]}}, {})
    (tmp_path / "plain").mkdir()
    with_anchor, without = load(tmp_path, text), load(tmp_path / "plain", plain)
    assert [stage.key for stage in with_anchor.stages] == [stage.key for stage in without.stages]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("0100", "found 0100, which is 64 in YAML's older form; write 100, or"),
        ("-0099", "found -0099, with a zero in front; write -99, or"),
        ("1:30", "found '1:30', needs a whole number; 1:30 is written 90"),
        ("0x40", "found '0x40', needs a whole number; 0x40 is written 64"),
        ("0b11", "needs a whole number; 0b11 is written 3"),
        ("'1,024'", "needs a whole number; 1,024 is written 1024"),
        ("2k", "needs a whole number; 2k is written 2e3"),
    ],
)
def test_a_number_in_an_odd_form_is_told_as_the_number_that_it_would_be(
    written: str, message: str, tmp_path: Path
) -> None:
    text = (
        write(tmp_path / "base.yaml", BASE).read_text().replace("length: 64", f"length: {written}")
    )
    assert any(message in line for line in told(tmp_path, text))
