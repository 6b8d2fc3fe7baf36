"""Stages that no sweep file names: another embedding without training, and what prepares data and
tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sweep_files import BASE, PRETRAIN, changed, keys, load, of, told, write

from fope_lab.planning.estimate import estimate_plans
from fope_lab.stages.internal import PrepareData
from fope_lab.sweep import plan
from fope_lab.sweep.plan import mechanism_note

YARN = {"type": "yarn", "factor": 4}
EXTEND = {"kind": "extend", "from": "pretrain", "train": "none", "embedding": YARN}
PERPLEXITY = BASE["stages"]["perplexity"]
TRAIN = BASE["stages"]["extend"]["train"]


def sweep(**stages: Any) -> dict[str, Any]:
    return {"name": "x", "stages": {"pretrain": PRETRAIN, **stages}}


def test_the_model_is_the_parents_with_another_embedding(tmp_path: Path) -> None:
    further = {**BASE["stages"]["finetune"], "from": "extend"}
    made = load(tmp_path, {**sweep(extend=EXTEND, further=further), "seeds": [0, 7]})
    for stage in of(made, "extend"):
        [parent] = [p for p in of(made, "pretrain") if p.seed == stage.seed]
        assert stage.parents == {"from": parent.key}
        assert stage.config["seed"] == stage.seed
        assert stage.model_spec is not None
        assert parent.model_spec is not None
        assert stage.embedding == "yarn(factor=4)"
        assert stage.model_spec.model == parent.model_spec.model
        assert stage.model_spec.train_length == stage.model_spec.last_trained_length == 64
        assert (stage.cost.tokens, stage.cost.flops) == (0, 0)
    assert [stage.embedding for stage in of(made, "further")] == ["yarn(factor=4)"] * 2


def test_an_evaluation_with_an_embedding_is_one_of_the_extension(tmp_path: Path) -> None:
    """Both ways of saying it are the same stages, under the same keys."""
    passkey = {**BASE["stages"]["passkey"], "from": "pretrain"}
    short = load(
        tmp_path,
        sweep(perplexity={**PERPLEXITY, "embedding": YARN}, passkey={**passkey, "embedding": YARN}),
    )
    long = load(
        tmp_path,
        sweep(
            extend=EXTEND,
            perplexity={**PERPLEXITY, "from": "extend"},
            passkey={**passkey, "from": "extend"},
        ),
    )
    assert {stage.key for stage in short.stages} == {stage.key for stage in long.stages}
    label = "swap-embedding[yarn(factor=4),pretrain[seed=0]]"
    assert keys(short)[label] == keys(long)["extend[seed=0]"]


def test_the_models_own_embedding_is_no_stage(tmp_path: Path) -> None:
    plain = load(tmp_path, sweep(perplexity=PERPLEXITY))
    own: tuple[Any, ...] = (None, "rope", {"type": "rotary", "base": 1e4})
    for embedding in own:
        made = load(tmp_path, sweep(perplexity={**PERPLEXITY, "embedding": embedding}))
        assert keys(made) == keys(plain)


def test_an_axis_over_an_evaluations_embedding(tmp_path: Path) -> None:
    grid = {"perplexity.embedding": [None, YARN, "alibi"]}
    made = load(tmp_path, {**sweep(perplexity=PERPLEXITY), "grid": grid})
    found = {stage.label: stage.embedding for stage in of(made, "perplexity")}
    assert found == {
        "perplexity[embedding=own,seed=0]": "rope",
        "perplexity[embedding=yarn(factor=4),seed=0]": "yarn(factor=4)",
        "perplexity[embedding=alibi,seed=0]": "alibi",
    }
    assert len(of(made, "swap-embedding")) == 2
    assert (mechanism_note(made) or "").startswith("swap-embedding[alibi,pretrain[seed=0]]: ")
    assert mechanism_note(load(tmp_path, sweep(extend=EXTEND))) is None


def test_a_claim_names_the_models_own_embedding(tmp_path: Path) -> None:
    """It is `own`, as in the names of stages, for every model."""
    content = {
        **sweep(perplexity=PERPLEXITY),
        "grid": {
            "pretrain.embedding": ["rope", "p-rope"],
            "perplexity.embedding": [None, {**YARN, "factor": 2}],
        },
    }
    for claim in (
        "perplexity@64: yarn(factor=2) < own",
        "perplexity@64 where perplexity.embedding=own: rope < p-rope",
    ):
        assert load(tmp_path, {**content, "report": {"claims": [claim]}}).report.claims == (claim,)
    wrong = {"claims": ["perplexity@64: yarn < none"]}
    [found] = told(tmp_path, {**content, "report": wrong})
    assert "none is not a value of perplexity.embedding (has: own, yarn(factor=2))" in found


def test_an_axis_over_training_and_none(tmp_path: Path) -> None:
    """Data and resources of the section are those of the points that train."""
    extend = {**EXTEND, "data": {"corpus": "c4", "length": 128}, "resources": {"gpus": 1}}
    grid = {"extend.train": ["none", TRAIN]}
    made = load(tmp_path, {**sweep(extend=extend), "grid": grid})
    assert [stage.kind for stage in of(made, "extend")] == ["swap-embedding", "extend"]
    assert [stage.spec.resources.gpus for stage in of(made, "extend")] == [0, 1]
    axes = {**grid, "extend.data": [None, extend["data"]]}
    zipped = load(tmp_path, {**sweep(extend=EXTEND), "zip": axes})
    assert {stage.key for stage in zipped.stages} == {stage.key for stage in made.stages}


def test_a_plan_expects_next_to_no_time(tmp_path: Path) -> None:
    estimate = estimate_plans([plan(load(tmp_path, sweep(extend=EXTEND)))])
    [stage] = [stage for stage in estimate.stages if stage.section == "extend"]
    forecast = estimate.forecasts[stage.key]
    assert forecast.seconds == 2
    assert "reads nothing" in forecast.source


LEARNED = "has 396 learned parameters, which the model with rope does not have"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"embedding": ...}, "embedding: is missing: train: none needs it"),
        ({"embedding": "fire"}, f"embedding: fire {LEARNED}"),
        ({"embedding": {"type": "yarn", "factor": 1}}, "changes no frequency"),
        ({"data": {"corpus": "c4", "length": 128}}, "data: has no effect: train is none"),
        ({"resources": {"gpus": 1}}, "resources.gpus: found 1, needs 0"),
        ({"seed": 1}, "seed: the seed is that of the model it starts from"),
        ({"train": "non"}, "train: found 'non', needs a mapping; train: none extends without"),
        ({"train": None}, "train: found nothing, needs a mapping; train: none extends without"),
        ({"train": ...}, "train: is missing, needs a mapping of its settings; train: none"),
        ({"train": {**TRAIN, "tokens": 0}}, "needs at least 1; train: none extends without"),
        ({"kind": "finetune"}, "found 'none', needs a mapping; only a stage of kind extend goes"),
        ({"kind": "perplexity", "lengths": [8], "corpus": "c4"}, "unknown key 'train'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    section = {name: v for name, v in (EXTEND | changes).items() if v is not ...}
    assert any(expected in problem for problem in told(tmp_path, sweep(extend=section)))


def test_what_an_evaluation_can_not_have_in_its_model(tmp_path: Path) -> None:
    [found] = told(tmp_path, sweep(perplexity={**PERPLEXITY, "embedding": "fire"}))
    assert found.startswith(f"5 stages.perplexity.embedding: fire {LEARNED}")
    figure = {"kind": "analysis", "analysis": "decay", "embedding": "rope"}
    assert "has no effect: decay looks at no model" in told(tmp_path, sweep(figure=figure))[0]
    axis = {"perplexity.embedding": ["fire", YARN]}
    [found] = told(tmp_path, {**sweep(perplexity=PERPLEXITY), "grid": axis})
    assert "grid.perplexity.embedding[0]: fire" in found


def test_learned_parameters_stay_where_the_embedding_has_the_same(tmp_path: Path) -> None:
    fope = {"type": "fope", "learned": True, "base": 1e4}
    content = changed(
        sweep(extend={**EXTEND, "embedding": fope}), {"stages.pretrain.embedding": fope}
    )
    assert of(load(tmp_path, content), "extend")
    content = changed(content, {"stages.extend.embedding": {**fope, "base": 3e4}})
    assert "learned parameters" in " ".join(told(tmp_path, content))


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
