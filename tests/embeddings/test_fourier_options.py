"""Every option of FoPE where its paper, its listing and its released code part ways."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fope_lab.embeddings import EmbeddingError, build_embedding
from fope_lab.embeddings.fourier import Fourier
from fope_lab.embeddings.module import PositionEmbedding

SIZES = {"head_dim": 64, "num_heads": 8, "train_length": 512}


def build(spec: Any, **sizes: int) -> PositionEmbedding:
    return build_embedding(spec, **{**SIZES, **sizes})


def fope(**options: Any) -> PositionEmbedding:
    return build({"type": "fope", **options})


def fourier(embedding: PositionEmbedding) -> Fourier:
    assert isinstance(embedding.definition, Fourier)
    return embedding.definition


def rope_frequencies(pairs: int, base: float = 10_000.0) -> Tensor:
    return base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)


def series(embedding: PositionEmbedding, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every pair, before they are laid out for `rotate`."""
    cos_sin = embedding.definition.cos_sin(embedding.shape, embedding._tensors(), positions)
    return cos_sin[0], cos_sin[1]


def as_released(sigma: float, **sizes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Frequencies, and cosine and sine coefficients by `xavier_normal_` on tensors of all heads."""
    frequencies = rope_frequencies(sizes["head_dim"] // 2)
    frequencies = frequencies[frequencies >= 2 * math.pi / sizes["train_length"]]
    inputs = len(frequencies)
    outputs = min(inputs, sizes["head_dim"] // 4)
    coefficients = []
    for _ in range(2):
        drawn = torch.empty(sizes["num_heads"], inputs, outputs)
        torch.nn.init.xavier_normal_(drawn, gain=sigma)
        for pair in range(outputs):
            if pair * math.ceil(inputs / outputs) < inputs:
                drawn[:, pair * math.ceil(inputs / outputs), pair] += 1
        coefficients.append(drawn)
    return frequencies, coefficients[0], coefficients[1]


@pytest.mark.parametrize(
    ("head_dim", "train_length", "rows", "pairs"),
    [(64, 512, 16, 16), (128, 512, 31, 31), (64, 4096, 23, 16)],
)
def test_the_official_preset_is_the_released_code(
    head_dim: int, train_length: int, rows: int, pairs: int
) -> None:
    """Sizes, the noise's deviation, the stepped identity and the pads of 1 below the floor."""
    sizes = {"head_dim": head_dim, "num_heads": 400, "train_length": train_length}
    embedding = build({"type": "fope-official", "sigma": 0.5}, **sizes)
    frequencies, *expected = as_released(0.5, **sizes)
    assert embedding.cos_coef.shape == (400, rows, pairs) == expected[0].shape
    torch.testing.assert_close(embedding.series_freq, frequencies)
    for ours, theirs in zip((embedding.cos_coef, embedding.sin_coef), expected, strict=True):
        assert ours.std(0).mean().item() == pytest.approx(theirs.std(0).mean().item(), rel=0.02)
        torch.testing.assert_close(ours.mean(0), theirs.mean(0), rtol=0, atol=0.01)
    assert fourier(embedding).noise_deviation(embedding.shape) == pytest.approx(
        expected[0].std(0).mean().item(), rel=0.02
    )
    cos, sin = series(embedding, torch.arange(20))
    angles = torch.arange(20, dtype=torch.float64)[:, None] * frequencies
    torch.testing.assert_close(
        cos[..., :pairs].double(), angles.cos() @ embedding.cos_coef.double(), rtol=0, atol=1e-5
    )
    assert (cos[..., pairs:] == 1).all()
    assert (sin[..., pairs:] == 1).all()
    own = frequencies[:: math.ceil(rows / pairs)][:pairs]
    torch.testing.assert_close(embedding.inv_freq[: len(own)], own)
    assert (embedding.inv_freq[len(own) :] == 0).all()


def test_official_pairs_below_the_floor_score_twice() -> None:
    """cos 1 and sin 1 turn x into x + (−x₂, x₁): of scores, the real part doubles."""
    for spec in (
        {"type": "fope-cf", "below_floor": "official"},
        {"type": "fope", "below_floor": "official"},
    ):
        embedding = build(spec)
        still = (embedding.inv_freq == 0).repeat(2)
        q, k = (torch.randn(1, 8, 5, 64) * still for _ in range(2))
        turned_q, turned_k = embedding.rotate(q, k, torch.arange(5))
        plain = q @ k.transpose(-1, -2)
        torch.testing.assert_close(turned_q @ turned_k.transpose(-1, -2), 2 * plain)


def test_below_the_floor_the_default_does_nothing_in_full_method_and_ablation_alike() -> None:
    for spec in ("fope", "fope-cf"):
        cos, sin = series(build(spec), torch.arange(30))
        assert (cos[..., 16:] == 1).all()
        assert (sin[..., 16:] == 0).all()


def test_the_ablations_move_one_thing() -> None:
    full, floor_only, series_only = build("fope"), build("fope-cf"), build("fope-fs")
    assert torch.equal(full.inv_freq, floor_only.inv_freq)
    assert not hasattr(floor_only, "cos_coef")
    assert torch.equal(series_only.inv_freq, build("rope").inv_freq)
    assert series_only.cos_coef.shape == (8, 32, 32)


@pytest.mark.parametrize("noise", ["xavier", "official", "normal"])
def test_the_stated_deviation_is_that_of_the_draws(noise: str) -> None:
    embedding = build({"type": "fope", "noise": noise, "sigma": 0.4}, num_heads=500)
    drawn = embedding.cos_coef - torch.eye(16)
    stated = fourier(embedding).noise_deviation(embedding.shape)
    assert drawn.std().item() == pytest.approx(stated, rel=0.02)
    expected = torch.empty((500, 16, 16) if noise == "official" else (16, 16))
    if noise == "normal":
        assert stated == 0.4
    else:
        draws = [torch.nn.init.xavier_normal_(expected, gain=0.4).std() for _ in range(200)]
        assert stated == pytest.approx(torch.stack(draws).mean().item(), rel=0.02)


def test_a_finer_ladder_gives_more_frequencies_and_the_pairs_keep_their_own() -> None:
    """Released code: `fourier_dim` 128 for a head of 64, of which the survivors count."""
    embedding = fope(num_frequencies=64)
    fine = rope_frequencies(64)
    survivors = fine[fine >= 2 * math.pi / 512]
    assert embedding.cos_coef.shape == (8, len(survivors), 16) == (8, 31, 16)
    torch.testing.assert_close(embedding.series_freq.sort(descending=True).values, survivors)
    torch.testing.assert_close(embedding.series_freq[:16], rope_frequencies(32)[:16])
    assert torch.equal(embedding.inv_freq, build("fope").inv_freq)
    assert fourier(embedding).facts(embedding.shape) == {
        "coefficient_noise_std": pytest.approx(0.3 * math.sqrt(2 / (31 + 16))),
        "num_frequencies": 64,
        "series_frequencies": 31,
    }


def test_a_coarser_ladder_leaves_pairs_their_own_frequency_without_noise() -> None:
    """Fig. 6c goes down to fewer frequencies than pairs."""
    embedding = fope(num_frequencies=8, sigma=1.0)
    coarse = rope_frequencies(8)
    survivors = int((coarse >= 2 * math.pi / 512).sum())
    noise = embedding.cos_coef - torch.eye(embedding.cos_coef.shape[1])[:, :16]
    noisy = noise.abs().sum(dim=(0, 2)) > 0
    assert int(noisy.sum()) == survivors == 4
    torch.testing.assert_close(
        embedding.series_freq[noisy].sort(descending=True).values, coarse[:survivors]
    )
    assert fourier(embedding).facts(embedding.shape)["series_frequencies"] == survivors


def test_sampled_frequencies_lie_in_0_to_pi_and_above_the_floor() -> None:
    embedding = build(
        {"type": "fope", "base": 129, "num_frequencies": 400, "frequencies": "sampled"},
        train_length=16,
    )
    sampled = embedding.series_freq[-400:]
    floor = 2 * math.pi / 16
    assert floor <= sampled.min().item() < floor + 0.1
    assert math.pi - 0.1 < sampled.max().item() <= math.pi
    middle = (sampled - floor) / (math.pi - floor)
    assert middle.mean().item() == pytest.approx(0.5, abs=0.05)
    others = build(
        {"type": "fope", "base": 129, "num_frequencies": 400, "frequencies": "sampled"},
        train_length=16,
        seed=1,
    )
    assert torch.equal(others.series_freq, embedding.series_freq)
    assert not torch.equal(others.cos_coef, embedding.cos_coef)


@pytest.mark.parametrize(
    "transforms",
    [
        ["clip_floor"],
        ["clip_floor", {"type": "yarn", "factor": 4}],
        ["clip_floor", {"type": "yarn", "factor": 4, "truncate": False}],
        ["clip_floor", {"type": "ntk", "factor": 4}],
        [{"type": "truncate", "p": 0.4}],
        [{"type": "interpolate", "factor": 3}, "resonance"],
    ],
)
@pytest.mark.parametrize("finer", [2, 3])
def test_a_finer_ladder_holds_every_pairs_frequency_whatever_changes_it(
    transforms: list[Any], finer: int
) -> None:
    """The paper's {ω_m} ⊆ {ω}: a frequency becomes the same in both ladders, and has noise."""
    plain = build({"type": "fourier", "transforms": transforms})
    embedding = build({"type": "fourier", "transforms": transforms, "num_frequencies": 32 * finer})
    assert torch.equal(embedding.inv_freq, plain.inv_freq)
    noise = embedding.cos_coef - torch.eye(*embedding.cos_coef.shape[1:])
    assert (noise.abs().sum(dim=(0, 2)) > 0).all()
    distinct = embedding.series_freq.unique()
    assert len(distinct) == fourier(embedding).facts(embedding.shape)["series_frequencies"]


def test_the_listing_divides_by_column_sums() -> None:
    listing, free = fope(column_sums="listing"), fope()
    assert torch.equal(listing.cos_coef, free.cos_coef)
    # At position 0 every cosine is 1: a pair's cosine is the sum of its column.
    cos, _ = series(listing, torch.tensor([0]))
    torch.testing.assert_close(cos[..., :16], torch.ones(8, 1, 16))
    cos, _ = series(free, torch.tensor([0]))
    torch.testing.assert_close(cos[:, 0, :16], free.cos_coef.sum(-2))


def test_sharing() -> None:
    heads = fope(shared_heads=True)
    assert heads.cos_coef.shape == (1, 16, 16)
    full = fope()
    for name in ("cos_coef", "sin_coef"):
        getattr(full, name).copy_(getattr(heads, name).expand(8, -1, -1))
    q, k = torch.randn(2, 2, 8, 30, 64)
    for ours, expected in zip(
        heads.rotate(q, k, torch.arange(30)), full.rotate(q, k, torch.arange(30)), strict=True
    ):
        torch.testing.assert_close(ours, expected)
    both = fope(shared_cos_sin=True)
    assert both.state_dict().keys() == {"cos_coef"}
    full.cos_coef.copy_(both.cos_coef)
    full.sin_coef.copy_(both.cos_coef)
    for ours, expected in zip(
        both.rotate(q, k, torch.arange(30)), full.rotate(q, k, torch.arange(30)), strict=True
    ):
        torch.testing.assert_close(ours, expected)
    assert not fope(shared_layers=True).definition.per_layer
    assert full.definition.per_layer


@pytest.mark.parametrize("shared", [False, True])
def test_learned_coefficients_are_parameters_that_start_from_the_same_draws(shared: bool) -> None:
    learned = fope(learned=True, shared_cos_sin=shared)
    names = {"cos_coef"} if shared else {"cos_coef", "sin_coef"}
    assert {name for name, _ in learned.named_parameters()} == names
    assert torch.equal(learned.cos_coef, fope(shared_cos_sin=shared).cos_coef)
    q, k = torch.randn(2, 1, 8, 30, 64)
    sum(x.square().sum() for x in learned.rotate(q, k, torch.arange(30))).backward()  # type: ignore[union-attr]
    for parameter in learned.parameters():
        assert (parameter.grad != 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_length": 4}, "no frequency is left for the Fourier series"),
        ({"transforms": ["clip_floor", "dynamic_ntk"]}, "dynamic_ntk changes frequencies with"),
        (
            {
                "frequencies": "sampled",
                "num_frequencies": 8,
                "transforms": [{"type": "truncate", "p": 0.5}],
            },
            "sampled frequencies are no ladder, which truncate needs",
        ),
        ({"frequencies": "sampled"}, "needs num_frequencies"),
        (
            {"frequencies": "sampled", "num_frequencies": 8, "output_pairs": "official"},
            "steps through a ladder, not through samples",
        ),
        ({"head_dim": 2, "output_pairs": "official", "transforms": []}, "no frequency is left"),
        ({"num_frequencies": 10**9}, "8,192"),
        ({"sigma": 1e300}, "100"),
    ],
)
def test_what_a_series_cannot_take_is_one_clear_error(
    options: dict[str, Any], message: str
) -> None:
    sizes = {name: options.pop(name) for name in SIZES if name in options}
    spec = {"type": "fourier", "transforms": ["clip_floor"], **options}
    with pytest.raises(EmbeddingError, match=message) as error:
        build(spec, **sizes)
    assert len(error.value.problems) == 1
