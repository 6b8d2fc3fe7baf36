"""The head that looks for apostrophes, made by hand among others, and its scores one by one."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fope_lab.analysis import Subject, parse_analysis
from fope_lab.analysis.activations import embedding_of, record
from fope_lab.analysis.attention_pattern import attention_logits
from fope_lab.data.problems import DataError
from fope_lab.drawing.svg import standalone_svg
from fope_lab.embeddings import build_embedding
from fope_lab.model import Decoder
from fope_lab.papers.p_rope.marked_head import MarkedHead
from fope_lab.papers.p_rope.semantic_heads import SemanticHeads

TEXT = "It isn't so, nor 'tis likely to be; what's done is done, & that's it, I'm sure you'll see."
SMALL = MarkedHead(sequences=2, length=40, drawn=24)
FASTEST, SLOWEST = torch.zeros(2, 16)
FASTEST[0], SLOWEST[7] = 4.0, 4.0


@pytest.fixture
def subject(made_by_hand: Callable[..., Decoder], reading: Callable[..., Subject]) -> Subject:
    """Layer 1, head 2 looks for apostrophes anywhere; layer 2, head 0 right before."""
    embedding = build_embedding("rope", head_dim=16, num_heads=1, train_length=64)
    x = 2 * FASTEST[None, None, None]
    turned, _ = embedding.rotate(x, x, torch.tensor([1]))
    heads = {
        (1, 2): (3 * SLOWEST, 3 * SLOWEST, 1),
        (2, 0): (2 * FASTEST, turned[0, 0, 0], 1),
    }
    return reading(made_by_hand(heads), TEXT)


def ignore(done: int, total: int) -> None:
    pass


@pytest.mark.parametrize(("looks", "head"), [("behind", (2, 0)), ("anywhere", (1, 2))])
def test_it_is_the_head_that_semantic_heads_finds(
    looks: str, head: tuple[int, int], subject: Subject
) -> None:
    analysis = parse_analysis({**SMALL.canonical(), "looks": looks})
    arrays = analysis.compute(subject, ignore)
    assert (int(arrays["layer"]), int(arrays["head"])) == head
    others = SemanticHeads(sequences=2, length=40, drawn=24).compute(subject, ignore)
    place = ["anywhere", "behind"].index(looks)
    assert others["heads"][place].tolist() == list(head)
    assert arrays["words"].tolist() == others["words"].tolist()
    np.testing.assert_allclose(arrays["weights"], others["patterns"][place], atol=1e-5)


def test_its_scores_are_counted_one_by_one(subject: Subject) -> None:
    arrays = SMALL.compute(subject, ignore)
    text = [word.replace("␣", " ") for word in arrays["words"].tolist()]
    ids = torch.tensor([subject.tokenizer.encode("".join(text))])
    *_, (layer, q, k) = record(subject.model, ids)
    logits = attention_logits(embedding_of(subject.model, layer), q, k, torch.arange(ids.shape[1]))[
        0, 0
    ]
    behind = [float(logits[i, i - 1]) for i in range(2, len(text)) if text[i - 1] == "'"]
    others = [
        float(logits[i, j]) for i in range(len(text)) for j in range(1, i + 1) if text[j] != "'"
    ]
    assert len(behind) > 2
    numbers = SMALL.numbers(arrays)
    assert numbers["marked_score"] == pytest.approx(np.mean(behind), abs=1e-4)
    assert numbers["unmarked_score"] == pytest.approx(np.mean(others), abs=1e-4)
    assert numbers["marked_score"] > numbers["unmarked_score"] + 1
    assert numbers["highest_score"] == pytest.approx(max(behind), abs=1e-4)


def test_its_figure_names_the_head(subject: Subject) -> None:
    svg = standalone_svg(SMALL.draw(SMALL.compute(subject, ignore)), SMALL.name, SMALL.says)
    assert "Queries, layer 2, head 0" in " ".join(ET.fromstring(svg).itertext())


def test_a_text_without_marked_tokens_is_refused(subject: Subject) -> None:
    with pytest.raises(DataError, match="none of the 80 tokens have one"):
        MarkedHead(characters="%", sequences=2, length=40).compute(subject, ignore)
