"""Settings of a training: which go together, what they read, and what is in the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweep_files import BASE, changed, load, of, told

TRAIN = "stages.pretrain.train"
PASSKEYS = {"length": 128, "task": "passkey", "form": "symbolic"}


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({"decay": 0.1}, "decay: has no effect: schedule cosine has no linear decay"),
        ({"decay": 0.5, "warmup": 0.6, "schedule": "wsd"},
         "decay: found 0.5, which with warmup 0.6 is more than 1, needs at most 0.4"),
        ({"select": "best"}, "validate_every: is missing: select best compares validations"),
        ({"validation_tokens": 4096},
         "validation_tokens: has no effect: there are no validations without validate_every"),
        ({"validation_tokens": 63, "validate_every": 5},
         "validation_tokens: found 63, needs at least data.length 64"),
        ({"validation_length": 128, "validation_tokens": 127, "validate_every": 5},
         "validation_tokens: found 127, needs at least validation_length 128"),
        ({"micro_batch_tokens": 100},
         "micro_batch_tokens: found 100, needs a multiple of data.length 64; the nearest are 64"
         " and 128"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(
    tmp_path: Path, train: dict[str, Any], expected: str
) -> None:
    content = changed(BASE, {f"{TRAIN}.{name}": value for name, value in train.items()})
    assert [text.partition(f"{TRAIN}.")[2] for text in told(tmp_path, content)] == [expected]


def test_workers_share_whole_sequences(tmp_path: Path) -> None:
    content = changed(BASE, {"stages.pretrain.resources": {"workers": 3}})
    [found] = told(tmp_path, content)
    assert found.endswith(
        "train.batch_tokens: found 2048, 32 sequences, which 3 workers can't share; the nearest are"
        " 1920 and 2112"
    )
    content = changed(content, {f"{TRAIN}.batch_tokens": 1920})
    assert of(load(tmp_path, content), "pretrain")


def test_most_tasks_alone_have_nothing_held_out(tmp_path: Path) -> None:
    content = changed(BASE, {"stages.pretrain.data": PASSKEYS, f"{TRAIN}.validate_every": 5})
    [found] = told(tmp_path, content)
    assert found.endswith(
        "train.validate_every: has no effect: data has no corpus, and no task with held-out rows"
        " (algorithmic, posgen)"
    )
    posgen = {"length": 64, "task": "posgen", "subtask": "cot", "modulus": 5, "examples": 50}
    content = changed(content, {"stages.pretrain.data": posgen})
    [stage] = of(load(tmp_path, content), "pretrain")
    assert stage.parents == {}


def test_held_out_rows_are_no_longer_than_the_embedding_reaches(tmp_path: Path) -> None:
    limited = {"type": "random-rope", "max_length": 256}
    long = {f"{TRAIN}.validate_every": 5, f"{TRAIN}.validation_length": 257}
    content = changed(BASE, {"stages.pretrain.embedding": limited} | long)
    found = told(tmp_path, content)
    assert any("train.validation_length: found 257, but" in one for one in found), found


def test_a_training_that_validates_reads_the_other_split_too(tmp_path: Path) -> None:
    mix = [{"corpus": "python-docs"}, PASSKEYS | {"weight": 0.5}, {"corpus": "c4"}]
    mix[1].pop("length")
    data = {"stages.pretrain.data": {"length": 128, "mix": mix}}
    plain = load(tmp_path, changed(BASE, data))
    [without] = of(plain, "pretrain")
    assert set(without.parents) == {"data.0", "data.2"}
    sweep = load(tmp_path, changed(BASE, data | {f"{TRAIN}.validate_every": 5}))
    [stage] = of(sweep, "pretrain")
    assert set(stage.parents) == {"data.0", "data.2", "validation.0", "validation.2"}
    prepared = {one.key: one for one in of(sweep, "prepare-data")}
    for role, key in stage.parents.items():
        place = role.partition(".")[2]
        spec = prepared[key].spec
        assert spec.split == ("validation" if role.startswith("validation") else "train")
        assert spec.corpus == prepared[stage.parents[f"data.{place}"]].spec.corpus
    assert stage.parents["data.0"] == without.parents["data.0"]
    assert stage.key != without.key


def test_a_default_that_is_given_is_the_same_stage(tmp_path: Path) -> None:
    def key(**train: Any) -> str:
        content = changed(BASE, {f"{TRAIN}.{name}": value for name, value in train.items()})
        [stage] = of(load(tmp_path, content), "pretrain")
        return stage.key

    assert key(schedule="wsd") == key(schedule="wsd", decay=0.1) != key(schedule="wsd", decay=0.2)
    assert key(validate_every=5) == key(validate_every=5, validation_tokens=65_536)
    assert key(validate_every=5) != key(validate_every=5, select="best")
