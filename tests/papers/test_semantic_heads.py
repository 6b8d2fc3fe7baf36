"""Heads made by hand that look for apostrophes are found; scores against a plain loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from analysed import figure_text, ignore, random_model

from fope_lab.analysis import Subject, parse_analysis
from fope_lab.analysis.reading import attention_patterns
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.embeddings import build_embedding
from fope_lab.model import Decoder
from fope_lab.papers.p_rope.semantic_heads import (
    SemanticHeads,
    head_scores,
    marked_tokens,
    richest_window,
)

SMALL = SemanticHeads(sequences=3, length=30)
TEXT = """I don't know what Emma's father's plans are, <tag> "nor" hers,
or if they're 'his'; it isn't ours to say what he's to do."""
FASTEST, SLOWEST = torch.zeros(16), torch.zeros(16)
FASTEST[0] = SLOWEST[7] = 1.0


def test_scores_are_those_of_a_plain_loop() -> None:
    model = random_model(num_kv_heads=2)
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 272, (2, 12))
    marked = generator.random((2, 12)) < 0.3
    marked[0, 0] = True  # which does not count
    found = head_scores(model, rows, marked)
    layers = [weights.numpy() for _, weights in attention_patterns(model, torch.from_numpy(rows))]
    for layer, head in ((0, 1), (1, 3)):
        mass, chance, behind, elsewhere, first = [], [], [], [], []
        for row in range(2):
            weights = layers[layer][row, head]
            places = [j for j in range(1, 12) if marked[row, j]]
            for i in range(12):
                seen = [j for j in places if j <= i]
                if seen:
                    mass.append(sum(weights[i, j] for j in seen))
                    chance.append(len(seen) / (i + 1))
                if i and i - 1 in places:
                    behind.append(weights[i, i - 1])
                elif i:
                    elsewhere.append(weights[i, i - 1])
                    first.append(weights[i, 0])
        assert found["mass"][layer, head] == pytest.approx(np.mean(mass), rel=1e-5)
        assert found["behind"][layer, head] == pytest.approx(np.mean(behind), rel=1e-5)
        assert found["elsewhere"][layer, head] == pytest.approx(np.mean(elsewhere), rel=1e-5)
        assert found["first"][layer, head] == pytest.approx(np.mean(first), rel=1e-5)
    assert found["chance"] == pytest.approx(np.mean(chance))
    assert found["occurrences"] == len(behind)


def test_heads_made_by_hand_are_found(
    made_by_hand: Callable[..., Decoder], reading: Callable[..., Subject]
) -> None:
    """One looks for apostrophes anywhere, through its slowest pair; one for an apostrophe right
    before, through its fastest, which must be the nearest of all that are seen at any distance."""
    embedding = build_embedding("rope", head_dim=16, num_heads=1, train_length=64)
    x = 2.0 * FASTEST[None, None, None]
    turned, _ = embedding.rotate(x, x, torch.tensor([1]))
    heads = {
        (1, 2): (3 * SLOWEST, 3 * SLOWEST, 1),
        (2, 0): (2 * FASTEST, turned[0, 0, 0], 1),
        (0, 3): (3 * FASTEST, 3 * FASTEST, 0),  # to the current token and those that rotate to it
    }
    subject = reading(made_by_hand(heads), TEXT)
    arrays = SMALL.compute(subject, ignore)
    assert arrays["heads"].tolist() == [[1, 2], [2, 0]]
    numbers = SMALL.numbers(arrays)
    assert numbers["mass"] > 0.95
    assert numbers["mass_of_even_attention"] < 0.2
    assert numbers["behind_marked"] > numbers["behind_others"] + 0.5
    assert numbers["mass_slow_share"] == pytest.approx(1)
    assert numbers["behind_slow_share"] == 0
    assert arrays["marked"].sum() >= 2
    columns = np.flatnonzero(arrays["marked"])
    after = arrays["patterns"][0][columns[0] :]
    np.testing.assert_allclose(after[:, columns].sum(-1), 1, atol=0.05)


def test_tokens_are_marked_by_their_text(reading: Callable[..., Subject]) -> None:
    marked = marked_tokens(reading(random_model(), TEXT), "'<")
    assert np.flatnonzero(marked).tolist() == [ord("'"), ord("<")]
    assert len(marked) == 272


@pytest.mark.parametrize(
    ("characters", "what"), [("\t#", "none of the 90"), (TEXT, "all of the 90")]
)
def test_texts_that_tell_nothing(
    characters: str, what: str, reading: Callable[..., Subject]
) -> None:
    analysis = SemanticHeads(sequences=3, length=30, characters=characters)
    with pytest.raises(DataError, match=f"characters: found .* {what}"):
        analysis.compute(reading(random_model(), TEXT), ignore)


def test_the_figure_without_a_rotation(reading: Callable[..., Subject]) -> None:
    arrays = SMALL.compute(reading(random_model("alibi"), TEXT), ignore)
    assert "key" not in arrays
    text = figure_text(SMALL, arrays)
    assert "▸'" in text
    most = (arrays["mass"] - arrays["chance"]).max()
    assert f"To marked tokens − uniform attention: 0 to {max(most, 0):.2g}" in text
    assert "To the previous token, marked − other" in text


def test_the_richest_window() -> None:
    subject = Subject(random_model(), ByteTokenizer(), np.arange(20) + 100)
    marked = np.zeros(272, dtype=bool)
    marked[[102, 109, 111, 113]] = True
    row = richest_window(subject, marked, 7).tolist()
    assert len(row) == 7
    assert {109, 111, 113} <= set(row[1:-1])
    assert richest_window(subject, ~marked, 20).tolist() == subject.tokens.tolist()


def test_no_characters_are_refused() -> None:
    with pytest.raises(DataError, match="characters"):
        parse_analysis({"type": "semantic-heads", "characters": ""})
