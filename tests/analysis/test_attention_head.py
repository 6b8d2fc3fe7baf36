"""One head's vectors and scores against complex arithmetic, and against a head made by hand."""

from __future__ import annotations

import cmath
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fope_lab.analysis import Subject, parse_analysis
from fope_lab.analysis.activations import embedding_of
from fope_lab.analysis.attention_pattern import attention_patterns
from fope_lab.data.problems import DataError
from fope_lab.drawing.svg import standalone_svg
from fope_lab.model import Decoder, ModelConfig
from fope_lab.papers.p_rope.attention_head import AttentionHead

TEXT = "It isn't so; that's what's said of it, and that is that."
SMALL = AttentionHead(layer=1, head=3, length=20, tabled=6)


def ignore(done: int, total: int) -> None:
    pass


def model_of(embedding: object = "rope") -> Decoder:
    config = ModelConfig(
        num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, hidden_size=64, vocab_size=272
    )
    model = Decoder(config, embedding, train_length=64).eval()
    generator = torch.Generator().manual_seed(3)
    for weight in model.parameters():
        weight.data += torch.randn(weight.shape, generator=generator) * 0.2
    return model


def projected(model: Decoder, tokens: torch.Tensor, layer: int, head: int) -> list[list[complex]]:
    """The query and the key of each token as complex pairs, from the layer's inputs and weights."""
    inputs: list[torch.Tensor] = []
    hook = model.layers[layer].self_attn.register_forward_pre_hook(
        lambda module, given: inputs.append(given[0])
    )
    with torch.no_grad():
        model(tokens)
    hook.remove()
    attention = model.layers[layer].self_attn
    found = []
    for projection, index in ((attention.q_proj, head), (attention.k_proj, head // 2)):
        rows = projection.weight[16 * index : 16 * (index + 1)]
        x = (inputs[0][0] @ rows.T).detach().double()
        found.append([[complex(v[i], v[i + 8]) for i in range(8)] for v in x.tolist()])
    return found


def test_scores_and_norms_are_those_of_complex_arithmetic(
    reading: Callable[..., Subject],
) -> None:
    model = model_of()
    subject = reading(model, TEXT)
    arrays = SMALL.compute(subject, ignore)
    queries, keys = projected(model, torch.from_numpy(subject.tokens[:20])[None], 1, 3)
    omegas = [10_000 ** (-i / 8) for i in range(8)]
    for i in range(20):
        np.testing.assert_allclose(arrays["query"][i], np.abs(queries[i]), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(arrays["key"][i], np.abs(keys[i]), rtol=1e-4, atol=1e-5)
        size = math.hypot(*map(abs, queries[i])) * math.hypot(*map(abs, keys[i])) / 4
        assert arrays["bound"][i] == pytest.approx(size, rel=1e-4)
        for j in range(20):
            terms = (
                q * k.conjugate() * cmath.exp(1j * (i - j) * omega)
                for q, k, omega in zip(queries[i], keys[j], omegas, strict=True)
            )
            expected = sum(term.real for term in terms) / 4
            found = arrays["logits"][i, j]
            assert math.isnan(found) if j > i else found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("embedding", ["rope", {"type": "fope", "base": 129}])
def test_the_attention_is_the_models(embedding: object, reading: Callable[..., Subject]) -> None:
    subject = reading(model_of(embedding), TEXT)
    arrays = SMALL.compute(subject, ignore)
    *_, (_, weights) = attention_patterns(
        subject.model, torch.from_numpy(subject.tokens[:20])[None]
    )
    np.testing.assert_allclose(arrays["weights"], weights[0, 3].numpy(), atol=1e-6)
    curves = SMALL.curve_values(arrays)
    assert {name: len(values) for name, values in curves.items()} == {
        name: len(positions) for name, positions in SMALL.curves.items()
    }
    assert (np.array(curves["own_score"]) <= np.array(curves["upper_bound"]) * 1.00001).all()
    assert curves["previous_score"][2] == arrays["logits"][3, 2]


def test_the_channel_is_that_of_mean_vectors(reading: Callable[..., Subject]) -> None:
    model = model_of()
    subject = reading(model, TEXT)
    analysis = AttentionHead(layer=1, head=3, length=20, tabled=6, pair=5)
    numbers = analysis.numbers(analysis.compute(subject, ignore))
    queries, keys = projected(model, torch.from_numpy(subject.tokens[:20])[None], 1, 3)
    query = sum(q[5] for q in queries[1:]) / 19
    others = sum(k[5] for k in keys[1:]) / 19
    for name, key in (("first_token", keys[0][5]), ("other_tokens", others)):
        expected = (query * key.conjugate()).real
        assert numbers[f"channel_{name}"] == pytest.approx(expected, abs=1e-4)
    assert numbers["channel_frequency"] == pytest.approx(10_000 ** (-5 / 8))
    assert numbers["channel_turn"] == pytest.approx(64 * 10_000 ** (-5 / 8))


def test_the_channel_of_the_paper_turns_by_a_quarter(reading: Callable[..., Subject]) -> None:
    """g₁₁₉, counted from 1, of a head of 256 dimensions: 0.0002 radians, 1.64 over 8,000 tokens."""
    config = ModelConfig(num_layers=1, num_heads=1, head_dim=256, hidden_size=8, vocab_size=272)
    model = Decoder(config, "rope", train_length=8000).eval()
    analysis = AttentionHead(length=8, pair=118)
    numbers = analysis.numbers(analysis.compute(reading(model, TEXT), ignore))
    assert round(numbers["channel_frequency"], 4) == 0.0002
    assert round(numbers["channel_turn"], 2) == 1.64


def test_a_head_of_equal_queries_and_keys_reaches_its_bound(
    made_by_hand: Callable[..., Decoder], reading: Callable[..., Subject]
) -> None:
    query = torch.full((16,), 3.0)
    subject = reading(made_by_hand({(1, 2): (query, query, 0)}), "of equal keys and queries")
    analysis = AttentionHead(layer=1, head=2, length=20)
    arrays = analysis.compute(subject, ignore)
    numbers = analysis.numbers(arrays)
    assert numbers["own_share_of_bound"] == pytest.approx(1, abs=1e-3)
    assert numbers["previous_share_of_bound"] < numbers["own_share_of_bound"] - 0.01
    assert arrays["weights"].argmax(axis=1).tolist() == list(range(20))


def test_its_figure_names_the_tokens_and_the_head(reading: Callable[..., Subject]) -> None:
    arrays = SMALL.compute(reading(model_of(), TEXT), ignore)
    svg = standalone_svg(SMALL.draw(arrays), SMALL.name, SMALL.says)
    text = " ".join(ET.fromstring(svg).itertext())
    assert "Queries, layer 1, head 3" in text
    assert "Attention" in text
    assert text.count("␣") > 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 2}, "layer: found 2, needs at most 1"),
        ({"head": 4}, "head: found 4, needs at most 3"),
        ({"pair": 8}, "pair: found 8, needs at most 7"),
    ],
)
def test_what_the_model_has_not_is_refused(
    options: dict[str, int], message: str, reading: Callable[..., Subject]
) -> None:
    analysis = parse_analysis({"type": "attention-head", **options})
    with pytest.raises(DataError, match=message):
        analysis.compute(reading(model_of(), TEXT), ignore)
    assert embedding_of(model_of(), 0).rotates
    with pytest.raises(DataError, match="rotates"):
        AttentionHead().compute(reading(model_of("alibi"), TEXT), ignore)
