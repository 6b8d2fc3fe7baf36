"""One head's vectors and scores against complex arithmetic, and heads that are made by hand."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from analysed import ignore, random_model

from fope_lab.analysis import Subject, parse_analysis
from fope_lab.analysis.reading import attention_logits, attention_patterns, record
from fope_lab.data.problems import DataError
from fope_lab.embeddings import build_embedding
from fope_lab.model import Decoder
from fope_lab.papers.p_rope.one_head import AttentionHead, MarkedHead
from fope_lab.papers.p_rope.semantic_heads import SemanticHeads

TEXT = "It isn't so; that's what's said of it, and that is that."
SMALL = AttentionHead(layer=1, head=3, length=20)
MARKED_TEXT = (
    "It isn't so, nor 'tis 'bout t'be; what's done is done, & that's it, I'm sure that you'll see."
)
MARKED = MarkedHead(sequences=2, length=40)
FASTEST, SLOWEST = torch.zeros(2, 16)
FASTEST[0], SLOWEST[7] = 4.0, 4.0


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


def test_scores_and_norms_are_those_of_complex_arithmetic(reading: Callable[..., Subject]) -> None:
    model = random_model(num_kv_heads=2)
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
    subject = reading(random_model(embedding, num_kv_heads=2), TEXT)
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
    model = random_model(num_kv_heads=2)
    subject = reading(model, TEXT)
    analysis = AttentionHead(layer=1, head=3, length=20, pair=5)
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
    sizes = {"num_layers": 1, "num_heads": 1, "head_dim": 256, "hidden_size": 8}
    model = random_model(train_length=8000, **sizes)
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
        analysis.compute(reading(random_model(num_kv_heads=2), TEXT), ignore)
    with pytest.raises(DataError, match="rotates"):
        AttentionHead().compute(reading(random_model("alibi"), TEXT), ignore)


@pytest.fixture
def subject(made_by_hand: Callable[..., Decoder], reading: Callable[..., Subject]) -> Subject:
    """Layer 1, head 2 looks for apostrophes anywhere; layer 2, head 0 right before."""
    embedding = build_embedding("rope", head_dim=16, num_heads=1, train_length=64)
    x = 2 * FASTEST[None, None, None]
    turned, _ = embedding.rotate(x, x, torch.tensor([1]))
    heads = {(1, 2): (3 * SLOWEST, 3 * SLOWEST, 1), (2, 0): (2 * FASTEST, turned[0, 0, 0], 1)}
    return reading(made_by_hand(heads), MARKED_TEXT)


@pytest.mark.parametrize(("looks", "head"), [("behind", (2, 0)), ("anywhere", (1, 2))])
def test_it_is_the_head_that_semantic_heads_finds(
    looks: str, head: tuple[int, int], subject: Subject
) -> None:
    analysis = parse_analysis({**MARKED.canonical(), "looks": looks})
    arrays = analysis.compute(subject, ignore)
    assert (int(arrays["layer"]), int(arrays["head"])) == head
    others = SemanticHeads(sequences=2, length=40).compute(subject, ignore)
    place = ["anywhere", "behind"].index(looks)
    assert others["heads"][place].tolist() == list(head)
    assert arrays["words"].tolist() == others["words"].tolist()
    np.testing.assert_allclose(arrays["weights"], others["patterns"][place], atol=1e-5)


def test_its_scores_are_counted_one_by_one(subject: Subject) -> None:
    arrays = MARKED.compute(subject, ignore)
    text = [word.replace("␣", " ") for word in arrays["words"].tolist()]
    ids = torch.tensor([subject.tokenizer.encode("".join(text))])
    *_, last = record(subject.model, ids)
    logits = attention_logits(last.scores, last.seen)[0, 0]
    behind = [float(logits[i, i - 1]) for i in range(2, len(text)) if text[i - 1] == "'"]
    others = [
        float(logits[i, j]) for i in range(len(text)) for j in range(1, i + 1) if text[j] != "'"
    ]
    assert len(behind) > 2
    numbers = MARKED.numbers(arrays)
    assert numbers["marked_score"] == pytest.approx(np.mean(behind), abs=1e-4)
    assert numbers["unmarked_score"] == pytest.approx(np.mean(others), abs=1e-4)
    assert numbers["marked_score"] > numbers["unmarked_score"] + 1
    assert numbers["highest_score"] == pytest.approx(max(behind), abs=1e-4)


def test_a_text_without_marked_tokens_is_refused(subject: Subject) -> None:
    with pytest.raises(DataError, match="none of the 80 tokens have one"):
        MarkedHead(characters="%", sequences=2, length=40).compute(subject, ignore)
