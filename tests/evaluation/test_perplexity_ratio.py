"""A perplexity over another text's, against each text read alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from measured import measured, ran
from sections import read_section

from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.packing import PackedCorpus, write_packed
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation.context import run
from fope_lab.evaluation.perplexity import Perplexity
from fope_lab.evaluation.perplexity.losses import perplexity
from fope_lab.model import load_model
from fope_lab.store.root import Store


@pytest.fixture(scope="module")
def two_texts(
    parents: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The documentation's prose, and a text of digits that is shorter."""
    folder = tmp_path_factory.mktemp("digits")
    (folder / "packed").mkdir()
    lines = (f"{number} 31415 {number * 7} 926535\n\n" for number in range(1500))
    (folder / "digits.txt").write_text("".join(lines))
    corpus = parse_corpus({"files": "*.txt"}, folder)
    write_packed(folder / "packed", corpus, ByteTokenizer(), "validation")
    return {**parents, "data.1": folder / "packed"}


def stage(**options: Any) -> Perplexity:
    section = {"kind": "perplexity", "from": "m", "corpus": "python-docs", "lengths": [8, 32]}
    return read_section(Perplexity, {**section, "over": "c4", **options})


@pytest.mark.parametrize("options", [{}, {"method": "sliding", "stride": 8, "average": "windows"}])
def test_both_perplexities_and_their_ratio(
    two_texts: dict[str, Path], tmp_path: Path, options: dict[str, Any]
) -> None:
    folder, result = ran(stage(tokens=900, **options), tmp_path, two_texts)
    alone = []
    for role in ("data.0", "data.1"):
        one = stage(tokens=900, **options, over=None)
        alone.append(ran(one, tmp_path, {**two_texts, "data.0": two_texts[role]}, role)[1])
    rows = list(folder.rows())
    assert [row.step for row in rows] == [8, 32]
    for row in rows:
        first, second = (measured(one)["perplexity_by_length", row.step] for one in alone)
        assert row.values["perplexity_by_length"] == pytest.approx(first, rel=1e-9)
        ratio = first / second
        assert row.values["perplexity_ratio_by_length"] == pytest.approx(ratio, rel=1e-9)
        assert abs(ratio - 1) > 1e-3  # the texts differ, or else nothing would be shown
        sums = [one["details"]["sums"][str(row.step)]["corpus"] for one in alone]
        both = result["details"]["sums"][str(row.step)]
        assert both == dict(zip(("corpus", "over"), sums, strict=True))
        assert measured(result)["perplexity_ratio_by_length", row.step] == pytest.approx(ratio)
    tokens = [len(PackedCorpus(two_texts[f"data.{i}"], {}).tokens[:900]) for i in (0, 1)]
    progress = folder.progress()
    assert progress is not None
    assert progress["total"] == 2 * (sum(tokens) - 2)


def test_the_other_text_has_to_reach_too(two_texts: dict[str, Path], tmp_path: Path) -> None:
    short = len(PackedCorpus(two_texts["data.1"], {}).tokens)
    assert perplexity(
        load_model(two_texts["from"]), PackedCorpus(two_texts["data.0"], {}).tokens[:9000], short
    ).count
    folder = Store(tmp_path).folder("perplexity", "key")
    with (
        pytest.raises(DataError, match=f"needs {short + 1:,} tokens, .* has {short:,}"),
        folder.begin("test", {}) as attempt,
    ):
        run(stage(lengths=[short]), attempt.writer, two_texts)
    assert not list((folder.path / "metrics").glob("*"))
