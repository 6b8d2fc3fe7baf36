"""The prepare-data stage: what was planned is what is written, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from sections import read_section

from fope_lab.data.packing import PackedCorpus, data_identity
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import tokenizer_identity
from fope_lab.stages.internal import PrepareData
from fope_lab.stages.key import stage_key
from fope_lab.store.root import Store
from trainers.data import prepare_data as run


def plan(folder: Path, split: str = "train") -> tuple[PrepareData, str]:
    """A stage and its key, as planning makes them."""
    stage = read_section(
        PrepareData, {"corpus": {"files": "*.txt"}, "tokenizer": "byte", "split": split}, folder
    )
    parts = {"corpus": stage.corpus.identity(), "tokenizer": tokenizer_identity("byte")}
    return stage, stage_key(stage, {}, parts)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "one.txt").write_text("\n\n".join(["A paragraph."] * 20))
    return folder


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_checkpoint_is_the_prepared_data(texts: Path, tmp_path: Path, split: str) -> None:
    stage, key = plan(texts, split)
    folder = Store(tmp_path / "store").folder("prepare-data", key)
    with folder.begin("test", {}) as attempt:
        attempt.finish(run(stage, attempt.writer, {}))
    checkpoint, content = folder.checkpoint(), folder.result()
    assert checkpoint is not None
    assert content is not None
    result = content["recorded"]
    packed = PackedCorpus(checkpoint.path, {"split": split})
    assert result["tokens"] == len(packed.tokens)
    assert result["documents"] == 1
    assert result["vocabulary"] == 272
    assert result["identity"] == data_identity(stage.corpus, tokenizer_identity("byte"), split)


def test_what_was_written_whole_is_not_written_again(texts: Path, tmp_path: Path) -> None:
    stage, key = plan(texts)
    folder = Store(tmp_path / "store").folder("prepare-data", key)
    with folder.begin("test", {}) as attempt:
        first = run(stage, attempt.writer, {})
    assert not folder.is_done()
    (texts / "one.txt").unlink()
    with folder.begin("test", {}) as attempt:
        attempt.finish(run(stage, attempt.writer, {}))
    assert folder.result() == first


def test_data_that_changed_since_planning_is_refused(texts: Path, tmp_path: Path) -> None:
    stage, key = plan(texts)
    (texts / "one.txt").write_text("Something else.")
    folder = Store(tmp_path / "store").folder("prepare-data", key)
    with (
        pytest.raises(DataError, match="has other content here than when"),
        folder.begin("test", {}) as attempt,
    ):
        run(stage, attempt.writer, {})
    assert folder.checkpoint() is None
    assert folder.attempts.newest().ending == "failed"
