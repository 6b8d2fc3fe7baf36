"""Parents: in the same file, in another one, in a folder; and references that name nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from sweep_files import BASE, PRETRAIN, PRETRAIN_LINE, changed, keys, load, of, told, write

from fope_lab.sweep import Problem, SweepError, load_sweep
from fope_lab.sweep.graph import Stage

PASSKEY: dict[str, Any] = {"kind": "passkey", "lengths": [64], "form": "symbolic"}


def passkey_of(reference: str, **more: Any) -> dict[str, Any]:
    """A sweep with one passkey stage."""
    return {"name": "child", "stages": {"passkey": {**PASSKEY, "from": reference}}, **more}


def wrong(path: Path) -> list[Problem]:
    with pytest.raises(SweepError) as caught:
        load_sweep(path)
    return caught.value.problems


# In the same file


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("pretrian",
         "no stage named 'pretrian' in this file; did you mean 'pretrain'? "
         "(allowed: pretrain, other, FILE.yaml#STAGE, a checkpoint folder, or hf:NAME@COMMIT)"),
        ("zzz",
         "no stage named 'zzz' in this file (allowed: pretrain, other, "
         "FILE.yaml#STAGE, a checkpoint folder, or hf:NAME@COMMIT)"),
        ("child", "a cycle: child → child"),
        ("other", "other is a stage of kind passkey, which produces no model"),
        ("''", "found '', needs text that is not empty"),
        ("", "found nothing, needs text"),
        ("[pretrain]", "found ['pretrain'], needs text"),
        ("hf:HuggingFaceTB/SmolLM-1.7B",
         "hf:HuggingFaceTB/SmolLM-1.7B has no revision, so it is not pinned: branches and tags "
         "can move. Give a commit, hf:HuggingFaceTB/SmolLM-1.7B@COMMIT, from "
         "https://huggingface.co/HuggingFaceTB/SmolLM-1.7B/commits/main"),
        ("hf:gpt2@main",
         "hf:gpt2@main has the revision 'main', so it is not pinned: branches and tags can "
         "move. Give a commit, hf:gpt2@COMMIT, from https://huggingface.co/gpt2/commits/main"),
        ("hf:gpt2@", "'hf:gpt2@' is incomplete: write hf:NAME or hf:NAME@REVISION"),
    ],
)  # fmt: skip
def test_a_wrong_reference(tmp_path: Path, reference: str, expected: str) -> None:
    text = (
        f"name: x\nstages:\n  pretrain: {PRETRAIN_LINE}\n"
        "  other: {kind: passkey, from: pretrain, lengths: [64], form: symbolic}\n"
        f"  child: {{kind: passkey, from: {reference}, lengths: [64], form: symbolic}}\n"
    )
    assert told(tmp_path, text) == [f"5 stages.child.from: {expected}"]


@pytest.mark.parametrize(
    ("read", "reference"),
    [("drafts.read_checkpoint", "./folder"), ("load.Expansion", "other.yaml#passkey")],
)
def test_a_fault_of_the_lab_is_not_a_wrong_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str, reference: str
) -> None:
    def faulty(*_: object) -> None:
        raise KeyError("of the lab")

    write(tmp_path / "other.yaml", changed(BASE, {"grid": {"pretrain.embedding": ["rope"]}}))
    monkeypatch.setattr(f"fope_lab.sweep.{read}", faulty)
    with pytest.raises(KeyError, match="of the lab"):
        load(tmp_path, passkey_of(reference))


def test_a_cycle_is_told_once_and_its_stages_are_still_checked(tmp_path: Path) -> None:
    train = "train: {tokens: 1e5, batch_tokens: 2048, learning_rate: 1e-3}"
    text = (
        "name: x\nseeds: [0, 1]\nstages:\n"
        f"  a: {{kind: extend, from: c, data: {{corpus: c4, length: 64}}, {train}}}\n"
        f"  b: {{kind: extend, from: a, data: {{corpus: c4, length: 64}}, {train}}}\n"
        f"  c: {{kind: extend, from: b, data: {{corpus: c4, length: 0}}, {train}}}\n"
        "  below: {kind: passkey, from: c, lengths: [64], trials: 0, form: symbolic}\n"
        "grid: {b.train.tokens: [1000, 2000]}\n"
    )
    assert told(tmp_path, text) == [
        "4 stages.a.from: a cycle: a → c → b → a",
        "6 stages.c.data.length: found 0, needs at least 1",
        "7 stages.below.trials: found 0, needs at least 1",
    ]


def test_from_may_be_an_axis(tmp_path: Path) -> None:
    content = {**BASE, "grid": {"passkey.from": ["pretrain", "extend"]}}
    sweep = load(tmp_path, content)
    assert {stage.parents["from"] for stage in of(sweep, "passkey")} == {
        of(sweep, "pretrain")[0].key,
        of(sweep, "extend")[0].key,
    }
    found = told(tmp_path, {**BASE, "grid": {"passkey.from": ["pretrain", "passkey", "extnd"]}})
    assert [line.split(" ", 1)[1].split(";")[0] for line in found] == [
        "grid.passkey.from[1]: a cycle: passkey → passkey",
        "grid.passkey.from[2]: no stage named 'extnd' in this file",
    ]


def test_a_parent_may_stand_below_its_child(tmp_path: Path) -> None:
    upwards = {**BASE, "stages": dict(reversed(BASE["stages"].items()))}
    assert keys(load(tmp_path, upwards)) == keys(load(tmp_path, BASE))


def test_a_long_chain_of_stages(tmp_path: Path) -> None:
    stages = {"s0": PRETRAIN}
    for i in range(1, 400):
        stages[f"s{i}"] = {**BASE["stages"]["extend"], "from": f"s{i - 1}"}
    chain = {"name": "chain", "stages": dict(reversed(stages.items()))}
    assert len(load(tmp_path, chain).stages) == 401


# In another file


@pytest.fixture
def figure(tmp_path: Path) -> Path:
    """fope/figure.yaml: two embeddings, two sizes, two seeds, with an evaluation."""
    content = {
        "name": "figure",
        "seeds": [0, 1],
        "stages": {"pretrain": PRETRAIN, "perplexity": BASE["stages"]["perplexity"]},
        "grid": {"pretrain.embedding": ["rope", "nope"], "pretrain.model.num_layers": [1, 2]},
    }
    return write(tmp_path / "fope" / "figure.yaml", content)


def test_joined_on_shared_axes_and_seeds(tmp_path: Path, figure: Path) -> None:
    content = passkey_of(
        "fope/figure.yaml#pretrain",
        seeds=[1],
        grid={
            "pretrain.embedding": ["nope"],
            "pretrain.model.num_layers": [2, 1],
            "passkey.trials": [5, 6],
        },
    )
    sweep, other = load(tmp_path, content), load_sweep(figure)
    expected = {
        stage.key: stage
        for stage in of(other, "pretrain")
        if stage.seed == 1 and stage.axes["pretrain.embedding"] == "nope"
    }
    found = of(sweep, "passkey")
    assert len(found) == 4
    for stage in found:
        parent = expected[stage.parents["from"]]
        assert stage.seed == 1
        assert stage.axes == {**parent.axes, "passkey.trials": stage.spec.trials}
        assert parent in sweep.stages, "what is needed of the other file is planned here"
    assert len(of(sweep, "pretrain")) == 2, "and nothing else of it"
    assert of(sweep, "perplexity") == []
    assert len(of(sweep, "prepare-data")) == 1


def test_the_same_key_from_both_files(tmp_path: Path, figure: Path) -> None:
    """An evaluation of another file's stage is the evaluation that the other file would make."""
    stage = BASE["stages"]["perplexity"]
    content = {
        "name": "child",
        "stages": {"mine": {**stage, "from": "fope/figure.yaml#pretrain"}},
        "grid": {"pretrain.embedding": ["rope"], "pretrain.model.num_layers": [1]},
    }
    theirs = {stage.key for stage in of(load_sweep(figure), "perplexity")}
    assert {stage.key for stage in of(load(tmp_path, content), "mine")} < theirs


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        ({"pretrain.embedding": ["rope"]},
         "stages.passkey.from: fope/figure.yaml#pretrain is ambiguous for pretrain.embedding "
         "rope: pretrain[embedding=rope,model.num_layers=1,seed=0], "
         "pretrain[embedding=rope,model.num_layers=2,seed=0]; choose one in grid by "
         "pretrain.model.num_layers"),
        ({"pretrain.embedding": ["rop"], "pretrain.model.num_layers": [1]},
         "grid.pretrain.embedding[0]: found 'rop'; did you mean 'rope'? (the other file has: "
         "rope, nope)"),
        ({"pretrain.embeding": ["rope"], "pretrain.model.num_layers": [1]},
         "grid.pretrain.embeding: matches nothing: no stage 'pretrain'; did you mean "
         "'pretrain.embedding'? (allowed: passkey, pretrain.embedding, "
         "pretrain.model.num_layers)"),
        ({"pretrain.embedding": ["rope"], "pretrain.model.num_layers": [True]},
         "grid.pretrain.model.num_layers[0]: found true (the other file has: 1, 2)"),
    ],
)  # fmt: skip
def test_a_wrong_join(
    tmp_path: Path, figure: Path, grid: dict[str, list[Any]], expected: str
) -> None:
    [found] = told(tmp_path, passkey_of("fope/figure.yaml#pretrain", grid=grid))
    assert found.split(" ", 1)[1] == expected


def test_a_seed_that_the_other_file_has_not(tmp_path: Path, figure: Path) -> None:
    grid = {"pretrain.embedding": ["rope"], "pretrain.model.num_layers": [1]}
    content = passkey_of("fope/figure.yaml#pretrain", grid=grid, seeds=[0, 5])
    [found] = told(tmp_path, content)
    assert found.endswith("has no stage with seed 5 (allowed: 0, 1)")


def test_cells_that_the_other_file_excludes(tmp_path: Path, figure: Path) -> None:
    other = {
        "name": "other",
        "stages": {"p": PRETRAIN},
        "grid": {"p.embedding": ["rope", "nope"], "p.model.num_layers": [1, 2]},
        "exclude": [{"p.embedding": "nope", "p.model.num_layers": 2}],
    }
    write(tmp_path / "other.yaml", other)
    [found] = told(tmp_path, passkey_of("other.yaml#p", grid=other["grid"]))
    assert "other.yaml#p has no stage for p.embedding nope, p.model.num_layers 2" in found
    exclude = {"grid": other["grid"], "exclude": other["exclude"]}
    assert len(of(load(tmp_path, passkey_of("other.yaml#p", **exclude)), "passkey")) == 3


def test_axis_values_join_by_what_they_are(tmp_path: Path) -> None:
    """10000, 1e4 and 10000.0 are one number; an equal stage counts under all its axes."""
    other = {
        "name": "other",
        "stages": {"p": PRETRAIN, "q": {**PASSKEY, "from": "p"}},
        "grid": {"p.embedding": ["rope", {"type": "rope", "base": 10000}]},
    }
    write(tmp_path / "other.yaml", other)
    text = (
        "name: x\nstages:\n"
        "  c: {kind: passkey, from: 'other.yaml#p', lengths: [64], form: symbolic}\n"
        "grid: {p.embedding: [rope, {base: 1.0e4, type: rope}]}\n"
    )
    assert len(of(load(tmp_path, text), "c")) == 1


def test_stages_that_are_equal_are_found_by_each_of_their_names(tmp_path: Path) -> None:
    write(tmp_path / "other.yaml", {"name": "o", "stages": {"a": PRETRAIN, "b": PRETRAIN}})
    first = load(tmp_path, passkey_of("other.yaml#a"))
    second = load(tmp_path, passkey_of("other.yaml#b"))
    assert [s.key for s in of(first, "passkey")] == [s.key for s in of(second, "passkey")]


def test_through_two_files(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", {"name": "a", "stages": {"pretrain": PRETRAIN}})
    extend = {**BASE["stages"]["extend"], "from": "a.yaml#pretrain"}
    write(tmp_path / "b.yaml", {"name": "b", "stages": {"extend": extend}})
    sweep = load(tmp_path, passkey_of("b.yaml#extend"))
    assert [s.section for s in sweep.stages if s.kind != "prepare-data"] == [
        "pretrain",
        "extend",
        "passkey",
    ]
    problem = told(tmp_path, passkey_of("b.yaml#pretrain"))
    assert problem[0].endswith("b.yaml has no stage 'pretrain' (allowed: extend)")


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("nix.yaml#pretrain", "no sweep file 'nix.yaml' in "),
        ("fope/figur.yaml#pretrain", "no sweep file 'fope/figur.yaml' in "),
        ("fope/figure.yaml#pretrian", "has no stage 'pretrian'; did you mean 'pretrain'? (allowed"),
        ("fope/figure.yaml#", "figure.yaml after the # (allowed: perplexity, pretrain)"),
        (
            "fope/figure.yaml#perplexity",
            "perplexity is a stage of kind perplexity, which produces no model",
        ),
        ("sweep.yaml#passkey", "this is the file itself; leave out the part before the #"),
    ],
)
def test_a_wrong_reference_to_another_file(
    tmp_path: Path, figure: Path, reference: str, expected: str
) -> None:
    grid = {"pretrain.embedding": ["rope"], "pretrain.model.num_layers": [1]}
    found = [
        line
        for line in told(tmp_path, passkey_of(reference, grid=grid))
        if " stages.passkey.from: " in line
    ]
    assert len(found) == 1
    assert expected in found[0]


def test_problems_of_the_other_file_are_told_once_with_its_lines(tmp_path: Path) -> None:
    write(tmp_path / "other.yaml", "name: o\nstages:\n  p: {kind: pretrian}\n")
    content = passkey_of("other.yaml#p", seeds=[0, 1], grid={"passkey.trials": [1, 2]})
    found = told(tmp_path, changed(content, {"stages.second": content["stages"]["passkey"]}))
    assert len(found) == 1
    assert found[0].startswith("other.yaml 3 stages.p.kind: unknown stage kind 'pretrian'")


def test_a_cycle_across_files(tmp_path: Path) -> None:
    extend = BASE["stages"]["extend"]
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        stages = {"e": {**extend, "from": f"{other}.yaml#e"}}
        write(tmp_path / f"{name}.yaml", {"name": name, "stages": stages})
    (tmp_path / "link.yaml").symlink_to(tmp_path / "a.yaml")
    for start in ("a", "link"):
        [found] = wrong(tmp_path / f"{start}.yaml")
        assert found.file == tmp_path / "c.yaml"
        assert found.message == "a cycle: a.yaml → b.yaml → c.yaml → a.yaml"


def test_the_other_file_is_looked_for_beside_above_and_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {"name": "o", "stages": {"p": PRETRAIN}}
    for folder in ("sweeps/mini", "sweeps", "here"):
        path = write(tmp_path / folder / "o.yaml", content)
        child = write(tmp_path / "sweeps" / "mini" / "child.yaml", passkey_of("o.yaml#p"))
        monkeypatch.chdir(tmp_path / "here" if folder == "here" else tmp_path)
        assert len(of(load_sweep(child), "passkey")) == 1
        path.unlink()
    [found] = wrong(child)
    assert "no sweep file 'o.yaml' in " in found.message


# A checkpoint folder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint as save_model writes it; only its identity matters here."""
    description = {
        "format": 1,
        "model": {"num_layers": 1, "num_heads": 2, "head_dim": 16, "vocab_size": 272},
        "embedding": {"type": "rotary", "base": 500.0},
        "train_length": 64,
        "context_length": 128,
        "tokenizer": "byte",
    }
    folder = tmp_path / "model"
    write(folder / "config.json", json.dumps(description))
    write(folder / "model.safetensors", b"weights")
    return folder


def only(folder: Path, content: dict[str, Any]) -> Stage:
    [stage] = of(load(folder, content), "passkey")
    return stage


def test_from_a_checkpoint_folder(tmp_path: Path, checkpoint: Path) -> None:
    stage = only(tmp_path, passkey_of("./model", seeds=[0, 1]))
    assert stage.parents == {}
    assert stage.checkpoints == {"from": str(checkpoint)}
    assert (stage.seed, stage.embedding) == (None, "rope(base=500.0)")
    assert stage.model_spec is not None
    assert (stage.model_spec.train_length, stage.model_spec.last_trained_length) == (64, 128)
    assert stage.model_spec.model.num_layers == 1
    assert only(tmp_path, passkey_of("model")).key == stage.key
    assert only(tmp_path, passkey_of(str(checkpoint))).key == stage.key


def test_a_checkpoint_is_its_content(tmp_path: Path, checkpoint: Path) -> None:
    key = only(tmp_path, passkey_of("./model")).key
    moved = tmp_path / "elsewhere" / "copy"
    shutil.copytree(checkpoint, moved)
    (tmp_path / "link").symlink_to(moved)
    assert only(tmp_path, passkey_of("./elsewhere/copy")).key == key
    assert only(tmp_path, passkey_of("link")).key == key
    write(moved / "training.pt", b"not the model")
    assert only(tmp_path, passkey_of("./elsewhere/copy")).key == key
    write(moved / "model.safetensors", b"others!")
    assert only(tmp_path, passkey_of("./elsewhere/copy")).key != key


def test_a_tokenizer_of_its_own_is_content_too(tmp_path: Path, checkpoint: Path) -> None:
    description = json.loads((checkpoint / "config.json").read_text())
    write(checkpoint / "config.json", json.dumps({**description, "tokenizer": "./tokenizer"}))
    keys = set()
    for tokenizer in ("one", "two", "one"):
        write(checkpoint / "tokenizer" / "tokenizer.json", tokenizer)
        keys.add(only(tmp_path, passkey_of("./model")).key)
    assert len(keys) == 2


def test_training_goes_on_from_a_checkpoint(tmp_path: Path, checkpoint: Path) -> None:
    extend = {
        **BASE["stages"]["extend"],
        "from": "./model",
        "embedding": {"type": "yarn", "base": 500, "factor": 2},
    }
    content = {"name": "x", "seeds": [0, 1], "stages": {"extend": extend}}
    stages = of(load(tmp_path, content), "extend")
    assert [stage.seed for stage in stages] == [0, 1]
    assert len({stage.key for stage in stages}) == 2
    assert set(stages[0].parents) == {"data.0"}
    assert stages[0].model_spec is not None
    assert stages[0].model_spec.train_length == 64, "the original length"
    assert stages[0].model_spec.last_trained_length == extend["data"]["length"]


def test_the_manifest_spares_reading_the_weights_only_while_it_fits(
    tmp_path: Path, checkpoint: Path
) -> None:
    def manifest(size: int) -> None:
        files = {
            name: {"size": (checkpoint / name).stat().st_size, "sha256": name}
            for name in ("config.json", "model.safetensors")
        }
        files["model.safetensors"]["size"] = size
        content = {"stage": "pretrain/x", "files": files, "metrics": {}}
        content |= {"seconds": 1.0, "cpu_seconds": 1.0}
        write(checkpoint / "manifest.json", json.dumps(content))

    plain = only(tmp_path, passkey_of("./model")).key
    manifest(7)
    trusted = only(tmp_path, passkey_of("./model")).key
    manifest(8)
    checked = only(tmp_path, passkey_of("./model")).key
    assert len({plain, trusted, checked}) == 3
    for damaged in ("[]", "{}", '{"files": {"config.json": 3}}', "nonsense"):
        write(checkpoint / "manifest.json", damaged)
        assert only(tmp_path, passkey_of("./model")).key == plain


@pytest.mark.parametrize(
    ("reference", "damage", "expected"),
    [
        ("./nix", None, "no folder "),
        ("sweep.yaml", None, "no folder "),
        ("./empty", None, "is not a checkpoint: it has no config.json"),
        ("./model", "config.json", "config.json has neither a format (allowed: 1, "),
        ("./model", "model.safetensors", "model.safetensors is missing"),
    ],
)
def test_a_wrong_checkpoint_folder(
    tmp_path: Path, checkpoint: Path, reference: str, damage: str | None, expected: str
) -> None:
    (tmp_path / "empty").mkdir()
    if damage == "config.json":
        write(checkpoint / damage, "{}")
    elif damage is not None:
        (checkpoint / damage).unlink()
    [found] = told(tmp_path, passkey_of(reference, grid={"passkey.trials": [1, 2]}))
    assert " stages.passkey.from: " in found
    assert expected in found


@pytest.mark.parametrize("embedding", ["rope", "fope", {"type": "yarn", "factor": 2}])
@pytest.mark.parametrize("stage", ["extend", "finetune"])
def test_a_base_that_is_not_the_parents_must_be_given(
    tmp_path: Path, stage: str, embedding: Any
) -> None:
    """A default would change all frequencies without a word, and make a factor another one."""
    parent = {"stages.pretrain.embedding": {"type": "rope", "base": 500}}
    [found] = told(tmp_path, changed(BASE, {**parent, f"stages.{stage}.embedding": embedding}))
    assert found.endswith(
        ": set `base` explicitly: default 10000 differs from the parent's 500; "
        "{type: …, base: 500} keeps the parent's"
    )
    given = {"type": embedding} if isinstance(embedding, str) else embedding
    for base in (500, 10_000):
        told_base = {f"stages.{stage}.embedding": {**given, "base": base}}
        assert load(tmp_path, changed(BASE, {**parent, **told_base}))
    assert load(tmp_path, changed(BASE, {f"stages.{stage}.embedding": embedding}))
    assert load(tmp_path, changed(BASE, {**parent, f"stages.{stage}.embedding": "alibi"}))


@pytest.mark.parametrize(
    ("parent", "embedding", "default", "kept"),
    [
        ({"type": "rope", "fraction": 0.5}, {"type": "yarn", "factor": 2}, "1", "fraction: 0.5"),
        ("partial", "rope", "1", "fraction: 0.25"),
        ({"type": "rope", "query_scale": "logn"}, "nope", "null", "query_scale: {type: logn}"),
        ("rope", {"type": "yarn", "factor": 2, "query_scale": "logn"}, None, ""),
    ],
)
def test_so_must_what_else_it_does_not_keep(
    tmp_path: Path, parent: Any, embedding: Any, default: str | None, kept: str
) -> None:
    fields = {"stages.pretrain.embedding": parent, "stages.extend.embedding": embedding}
    if default is None:
        assert load(tmp_path, changed(BASE, fields))
        return
    [found] = told(tmp_path, changed(BASE, fields))
    name, _, value = kept.partition(": ")
    assert found.endswith(
        f": set `{name}` explicitly: default {default} differs from the parent's {value}; "
        f"{{type: …, {kept}}} keeps the parent's"
    )
    given = {"type": embedding} if isinstance(embedding, str) else embedding
    told_it = {**given, **yaml.safe_load(f"{{{kept}}}")}
    assert load(tmp_path, changed(BASE, {**fields, "stages.extend.embedding": told_it}))
    assert load(tmp_path, changed(BASE, {**fields, "stages.extend.embedding": parent}))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"resizing": "expand"}, "found expand, which has no effect: the model keeps"),
        ({"resizing": "pad", "embedding": "fope"}, "found pad, but fope keeps nothing of rope"),
        ({"resizing": "extend", "embedding": "fope"}, "allowed: draw, expand, pad"),
    ],
)
def test_a_resizing_that_resizes_nothing_is_refused(
    tmp_path: Path, options: dict[str, Any], expected: str
) -> None:
    fields = {f"stages.extend.{name}": value for name, value in options.items()}
    [found] = told(tmp_path, changed(BASE, {"stages.extend.embedding": None, **fields}))
    assert ".resizing: " in found
    assert expected in found
