"""What is wrong inside a stage's section: each one clear problem, with the nearest right name."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_files import PRETRAIN_LINE, told

from fope_lab.data.corpora.registry import CORPORA
from fope_lab.data.recipe import TASKS
from fope_lab.embeddings import EMBEDDINGS as REGISTERED
from fope_lab.embeddings import PRESETS
from fope_lab.embeddings.base import EMBEDDING_TYPES
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES
from fope_lab.model.config import SCALES as MODEL_SCALES
from fope_lab.stages.base import FILE_KINDS

TRAIN = "train: {tokens: 1e5, batch_tokens: 2048, learning_rate: 1e-3}"


def pretrain(old: str, new: str) -> str:
    """A file whose only stage, on line 3, has a part of its section exchanged."""
    assert old in PRETRAIN_LINE
    return f"name: x\nstages:\n  p: {PRETRAIN_LINE.replace(old, new)}\n"


def child(section: str) -> str:
    """A file with a pretraining and, on line 4, a child c with this section."""
    return f"name: x\nstages:\n  p: {PRETRAIN_LINE}\n  c: {{from: p, {section}}}\n"


KINDS = f"(allowed: {', '.join(sorted(FILE_KINDS.all_names()))})"
EMBEDDINGS = f"(allowed: {', '.join(sorted({*PRESETS, *EMBEDDING_TYPES.all()}))})"
TRANSFORMS = f"(allowed: {', '.join(sorted(TRANSFORM_TYPES.all()))})"
SCALES = f"(allowed: {', '.join(MODEL_SCALES)})"
BARE_EMBEDDINGS = (
    f"(allowed: {', '.join(sorted(REGISTERED.names()))}, and with options "
    f"{', '.join(sorted(set(REGISTERED.all_names()) - set(REGISTERED.names())))})"
)
BARE_CORPORA = (
    f"(allowed: {', '.join(sorted(CORPORA.names()))}, and with options dataset, dataset-chat, "
    "dataset-joined, dataset-pairs, dataset-tokens, files, token-ids)"
)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("kind: pretrain,", "", f"kind: is missing: the stage kind's name {KINDS}"),
        ("kind: pretrain", "kind:", f"kind: found nothing, needs the stage kind's name {KINDS}"),
        ("kind: pretrain", "kind: Pretrain",
         f"kind: unknown stage kind 'Pretrain'; did you mean 'pretrain'? {KINDS}"),
        ("kind: pretrain", "kind: prepare-data",
         f"kind: unknown stage kind 'prepare-data' {KINDS}"),
        ("kind: pretrain", "kind: longbench",
         "kind: the stage kind 'longbench' is gone, needs lm-eval, with tasks such as "
         "longbench_trec_e"),
        ("kind: pretrain", "kind: pretrain, seed: 3",
         "seed: seeds are the whole sweep's, as in seeds: [0, 1, 2]"),
        ("kind: pretrain", "kind: pretrain, embeding: rope",
         "embeding: unknown key 'embeding'; did you mean 'embedding'? (allowed: data, "
         "embedding, model, prefix, resources, select, timeout, tokenizer, train)"),
        # model
        ("model: {scale: tiny},", "", "model: is missing"),
        ("{scale: tiny}", "", "model: found nothing, needs a scale or a mapping of sizes"),
        ("{scale: tiny}", "tinny", f"model: unknown scale 'tinny'; did you mean 'tiny'? {SCALES}"),
        ("scale: tiny", "scale: tiny, num_layer: 2",
         "model.num_layer: unknown option 'num_layer' of a model; did you mean 'num_layers'? "
         "(allowed: attention_cap, biases, dropout, feed_forward, head_dim, hidden_size, "
         "intermediate_size, logit_cap, norm, norm_eps, norm_place, num_heads, num_kv_heads, "
         "num_layers, parallel, qk_norm, scale, scale_embeddings, score_size, tie_embeddings, "
         "vocab_size)"),
        ("scale: tiny", "scale: tiny, num_layers: 0",
         "model.num_layers: found 0, needs at least 1"),
        ("scale: tiny", "scale: tiny, num_layers: true",
         "model.num_layers: found true, needs a whole number"),
        ("scale: tiny", "scale: tiny, num_heads: '4'",
         "model.num_heads: found '4', needs a whole number"),
        ("scale: tiny", "scale: tiny, head_dim: 1e9",
         "model.head_dim: found 1000000000, needs at most 1,000,000"),
        ("scale: tiny", "scale: tiny, norm_eps: .inf",
         "model.norm_eps: found inf, needs a finite number"),
        ("scale: tiny", "scale: tiny, num_kv_heads: 3",
         "model: num_heads 4 is not divisible by num_kv_heads 3"),
        ("scale: tiny", "scale: tiny, vocab_size: 271",
         "model.vocab_size: found 271, needs at least the 272 tokens of the tokenizer 'byte'"),
        ("scale: tiny", "num_layers: 2, num_heads: 4",
         "model.head_dim: is missing: a model without a scale needs it"),
        # embedding
        ("embedding: rope,", "", "embedding: is missing"),
        ("rope", "RoPE",
         f"embedding: unknown embedding 'RoPE'; did you mean 'rope'? {BARE_EMBEDDINGS}"),
        ("rope", "'fope(base=129,sigma=0.1)'",
         "embedding: found 'fope(base=129,sigma=0.1)', needs a mapping, as in {type: fope, base:"
         " 129, sigma: 0.1}"),
        ("rope", "{type: rop}",
         f"embedding.type: unknown embedding 'rop'; did you mean 'rope'? {EMBEDDINGS}"),
        ("rope", "{type: rope, base: 0.5}", "embedding.base: found 0.5, needs more than 1"),
        ("rope", "{type: rotary, transforms: [{type: yarm, factor: 2}]}",
         "embedding.transforms[0].type: unknown frequency transform 'yarm'; did you mean 'yarn'?"
         f" {TRANSFORMS}"),
        # data
        (", length: 64", "", "data.length: is missing: data needs it"),
        ("{corpus: c4, length: 64}", "5", "data: found 5, needs a mapping with length and corpus"),
        ("c4", "pg9", f"data.corpus: unknown corpus 'pg9'; did you mean 'pg19'? {BARE_CORPORA}"),
        ("c4", "{type: c4, limit: 0}", "data.corpus.limit: found 0, needs at least 1"),
        ("c4", "{dataset: someone/something}",
         "data.corpus.revision: is missing: pin someone/something to a commit, shown at "
         "https://huggingface.co/datasets/someone/something/commits/main"),
        ("c4", "python-docstrings",
         "data.corpus: the corpus python-docstrings holds pairs; a stage of kind pretrain reads "
         "text or tokens"),
        ("{corpus: c4, length: 64}", "{length: 64, mix: [{corpus: c4}, {task: passkee}]}",
         "data.mix[1].task: unknown task 'passkee'; did you mean 'passkey'? "
         f"(allowed: {', '.join(sorted(TASKS.entries))})"),
        ("{corpus: c4, length: 64}", "{length: 8, mix: [{corpus: c4}, {task: passkey}]}",
         "data.length: a symbolic prompt with 5 digits needs at least 12 tokens, but "
         "length is 9 (a row of training has one token more than data.length)"),
        # train
        ("tokens: 1e5", "tokens: 1.5M",
         "train.tokens: found '1.5M', needs a whole number; 1.5M is written 1.5e6"),
        ("tokens: 1e5", "tokens: 1e5, checkpoint_minutes: 30m",
         "train.checkpoint_minutes: found '30m', needs a number of minutes"),
        ("tokens: 1e5", "tokens: 0",
         "train.tokens: found 0, needs at least 1; only a stage of kind extend goes without "
         "training"),
        ("tokens: 1e5", "tokens: '1e5'", "train.tokens: found '1e5', needs a whole number"),
        ("tokens: 1e5,", "", "train.tokens: is missing"),
        ("1e-3", "1e-3, warmup: 1.5", "train.warmup: found 1.5, needs at most 1"),
        ("1e-3", "1e-3, schedule: cosin",
         "train.schedule: found 'cosin'; did you mean 'cosine'? (allowed: cosine, linear, wsd, "
         "constant)"),
        ("1e-3", "1e-3, betas: [0.9]", "train.betas[1]: is missing"),
        ("1e-3", "1e-3, betas: [0, 0, 0]", "train.betas: found [0, 0, 0], needs at most 2 entries"),
        ("1e-3", "1e-3, betas: [0.9, 1]", "train.betas[1]: found 1, needs less than 1"),
        ("2048", "2000",
         "train.batch_tokens: found 2000, needs a multiple of data.length 64; the nearest are "
         "1984 and 2048"),
        ("2048", "60",
         "train.batch_tokens: found 60, needs a multiple of data.length 64; the least is 64"),
        # resources and tokenizer
        ("kind: pretrain", "kind: pretrain, resources: {gpu: 1}",
         "resources.gpu: unknown key 'gpu'; did you mean 'gpus'? (allowed: cpus, gpus, "
         "strategy, workers)"),
        ("kind: pretrain", "kind: pretrain, tokenizer: ''",
         "tokenizer: found '', needs a tokenizer's name or path, or a mapping with train, "
         "vocabulary and corpus"),
        ("kind: pretrain", "kind: pretrain, tokenizer: gpt2",
         "model.vocab_size: is missing: the vocabulary of the tokenizer 'gpt2' is known only "
         "once it is loaded"),
    ],
)  # fmt: skip
def test_a_wrong_pretraining(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert told(tmp_path, pretrain(old, new)) == [f"3 stages.p.{expected}"]


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("kind: perplexity, corpus: c4", "lengths: is missing"),
        ("kind: perplexity, corpus: c4, lengths: 64", "lengths: found 64, needs a list"),
        ("kind: perplexity, corpus: c4, lengths: []",
         "lengths: found [], needs at least one entry"),
        ("kind: perplexity, corpus: c4, lengths: [64, 0]", "lengths[1]: found 0, needs at least 2"),
        ("kind: perplexity, corpus: c4, lengths: [64, 2.0]",
         "lengths[1]: found 2.0, needs a whole number"),
        ("kind: perplexity, corpus: c4, lengths: [64, 32, 64]", "lengths[2]: names 64 twice"),
        ("kind: perplexity, corpus: c4, lengths: [64], method: slide, stride: 4",
         "method: found 'slide'; did you mean 'sliding'? (allowed: chunked, sliding)"),
        ("kind: perplexity, corpus: c4, lengths: [64], method: sliding",
         "stride: is missing: method sliding needs a stride"),
        ("kind: perplexity, corpus: c4, lengths: [64], stride: 4",
         "stride: has no effect: method chunked has no stride"),
        ("kind: perplexity, corpus: c4, lengths: [64, 32], method: sliding, stride: 33",
         "stride: found 33, needs at most the smallest length 32, so that no token between two "
         "windows is left out"),
        ("kind: perplexity, corpus: c4, lengths: [64, 32], tokens: 64",
         "tokens: found 64, needs more than the largest length 64"),
        ("kind: perplexity, corpus: python-docstrings, lengths: [64]",
         "corpus: the corpus python-docstrings holds pairs; a stage of kind perplexity reads "
         "text or tokens"),
        ("kind: passkey, lengths: [64], form: symbolc",
         "form: found 'symbolc'; did you mean 'symbolic'? (allowed: english, symbolic)"),
        ("kind: passkey, lengths: [64, 11], form: symbolic",
         "lengths: a symbolic prompt with 5 digits needs at least 12 tokens, but length is 11"),
        (f"kind: finetune, data: {{corpus: c4, length: 64}}, {TRAIN}",
         "data.corpus: the corpus c4 holds text; a stage of kind finetune reads pairs or chats"),
        (f"kind: finetune, data: {{task: passkey, length: 64}}, {TRAIN}",
         "data.task: found a task; a stage of kind finetune reads corpora of pairs or chats"),
        (f"kind: extend, embedding: {{type: yarn, factor: 0.5}}, "
         f"data: {{corpus: c4, length: 64}}, {TRAIN}",
         "embedding.factor: found 0.5, needs at least 1"),
    ],
)  # fmt: skip
def test_a_wrong_child(tmp_path: Path, section: str, expected: str) -> None:
    assert told(tmp_path, child(section)) == [f"4 stages.c.{expected}"]


def test_a_factor_that_changes_no_frequency_is_an_error(tmp_path: Path) -> None:
    section = (
        "kind: extend, embedding: {type: yarn, factor: 1}, data: {corpus: c4, length: 64}, " + TRAIN
    )
    [found] = told(tmp_path, child(section))
    assert found.startswith("4 stages.c.embedding: ")
    assert "changes no frequency" in found


RANDOM = "{type: random-rope, max_length: 100}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (child("kind: passkey, lengths: [64, 101], trials: 4").replace("rope", RANDOM),
         "4 stages.c.lengths: found 101, but random-rope(max_length=100) has positions for at "
         "most 100 tokens"),
        (child(f"kind: extend, data: {{corpus: c4, length: 128}}, {TRAIN}").replace("rope",
         RANDOM),
         "4 stages.c.data.length: found 128, but random-rope(max_length=100) has positions for "
         "at most 100 tokens"),
        (child("kind: passkey, lengths: [64, 65], trials: 4").replace("rope", "learned"),
         "4 stages.c.lengths: found 65, but learned has positions for at most 64 tokens"),
        (pretrain("rope", "{type: learned, num_positions: 63}"),
         "3 stages.p.embedding: num_positions 63 is less than the training length 64"),
        (pretrain("rope", "{type: random-rope, max_length: 32}"),
         "3 stages.p.embedding: max_length 32 is less than the training length 64: there are "
         "not enough positions to draw"),
    ],
)  # fmt: skip
def test_sequences_that_drawn_or_learned_positions_do_not_reach(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert told(tmp_path, text) == [expected]


def test_a_missing_corpus(tmp_path: Path) -> None:
    text = pretrain("c4", "{files: 'books/*.txt'}")
    [found] = told(tmp_path, text)
    assert found.startswith("3 stages.p.data.corpus.files: no file matches 'books/*.txt' in ")
    assert str(tmp_path) in found


def test_a_missing_tokenizer(tmp_path: Path) -> None:
    text = pretrain("scale: tiny}", "scale: tiny, vocab_size: 999}, tokenizer: ./nix.json")
    [found] = told(tmp_path, text)
    assert found.startswith("3 stages.p.tokenizer: no tokenizer: ")


def test_all_that_is_wrong_in_a_section(tmp_path: Path) -> None:
    text = (
        "name: x\n"
        "stages:\n"
        "  p:\n"
        "    kind: pretrain\n"
        "    seed: 1\n"
        "    model: {scale: tinny, num_layers: 0}\n"
        "    embedding:\n"
        "      type: rope\n"
        "      base: x\n"
        "      bas: 3\n"
        "    data:\n"
        "      length: -1\n"
        "      mix:\n"
        "        - {corpus: c5, weight: 0}\n"
        "        - {task: passkey, digits: 12}\n"
        "    train: {tokens: -1, batch_tokens: x}\n"
    )
    places = [line.split(": ")[0] for line in told(tmp_path, text)]
    assert places == [
        "5 stages.p.seed",
        "6 stages.p.model.scale",
        "6 stages.p.model.num_layers",
        "9 stages.p.embedding.base",
        "10 stages.p.embedding.bas",
        "12 stages.p.data.length",
        "14 stages.p.data.mix[0].weight",
        "14 stages.p.data.mix[0].corpus",
        "15 stages.p.data.mix[1].digits",
        "16 stages.p.train.tokens",
        "16 stages.p.train.batch_tokens",
        "16 stages.p.train.learning_rate",
    ]
