"""What a decoder can do beside logits: losses, documents, checkpointing, scaled embeddings."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fope_lab.model import Decoder, ModelConfig

CONFIG = ModelConfig(num_layers=2, num_heads=4, head_dim=16, num_kv_heads=2, vocab_size=90)
MECHANISMS: list[Any] = ["nope", "rope", {"type": "fope", "base": 129}, "alibi", "kerple", "fire"]
"""One for each way that attention goes, and each way that layers share an embedding."""


def tokens(batch: int = 2, length: int = 50) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, CONFIG.vocab_size, (batch, length), generator=generator)


def next_tokens(ids: Tensor) -> Tensor:
    """Labels, a third of which do not count."""
    labels = ids.roll(-1, dims=1)
    labels[:, ::3] = -100
    return labels


def plain_loss(model: Decoder, ids: Tensor, labels: Tensor, **options: Any) -> Tensor:
    logits = model(ids, **options).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")


def gradients(model: Decoder, loss: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def test_a_plain_feed_forward_has_two_matrices_and_a_relu() -> None:
    model = Decoder(dataclasses.replace(CONFIG, feed_forward="relu"), "rope", train_length=64)
    mlp = model.layers[0].mlp
    up, down = mlp.up_proj.weight, mlp.down_proj.weight
    assert {name for name, _ in mlp.named_parameters()} == {"up_proj.weight", "down_proj.weight"}
    hidden = torch.randn(2, 5, CONFIG.hidden_size)
    torch.testing.assert_close(mlp(hidden), (hidden @ up.T).clamp(min=0) @ down.T)


def test_embeddings_are_scaled_in_the_dtype_of_the_states() -> None:
    config = dataclasses.replace(CONFIG, hidden_size=48, scale_embeddings=True)  # √48 is rounded
    plain = Decoder(dataclasses.replace(config, scale_embeddings=False), "nope", train_length=64)
    scaled = Decoder(config, "nope", train_length=64)
    for dtype in (torch.float32, torch.bfloat16):
        plain.to(dtype), scaled.to(dtype)
        factor = torch.tensor(48.0).sqrt().to(dtype)
        with torch.no_grad():
            plain.embed_tokens.weight.copy_(scaled.embed_tokens.weight * factor)
        assert torch.equal(scaled.hidden(tokens()), plain.hidden(tokens()))


@pytest.mark.parametrize("tied", [False, True])
def test_the_loss_is_that_of_all_logits(tied: bool) -> None:
    model = Decoder(dataclasses.replace(CONFIG, tie_embeddings=tied), "rope", train_length=64)
    ids, labels = tokens(), next_tokens(tokens())
    output = model(ids, labels=labels)
    assert output.logits is None
    expected = plain_loss(model, ids, labels)
    torch.testing.assert_close(output.loss, expected)
    ours, theirs = gradients(model, output.loss), gradients(model, expected)
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.parametrize("embedding", MECHANISMS)
def test_the_loss_under_autocast_is_near_and_its_gradients_wide(embedding: Any) -> None:
    model = Decoder(CONFIG, embedding, train_length=64)
    ids, labels = tokens(), next_tokens(tokens())
    exact = plain_loss(model, ids, labels)
    with torch.autocast("cpu", torch.bfloat16):
        output = model(ids, labels=labels)
    assert output.loss.dtype == torch.float32
    assert output.loss.item() == pytest.approx(exact.item(), rel=1e-3)
    ours, theirs = gradients(model, output.loss), gradients(model, exact)
    for name, gradient in ours.items():
        assert gradient.dtype == torch.float32
        assert (gradient - theirs[name]).norm() < 0.05 * theirs[name].norm() + 1e-3, name


@pytest.mark.parametrize("embedding", MECHANISMS)
@pytest.mark.parametrize("given", [False, True])
def test_a_document_sees_itself_alone(embedding: Any, given: bool) -> None:
    """Each document, read alone at its positions, has the logits that it has among others."""
    model = Decoder(CONFIG, embedding, train_length=64)
    ids = tokens()
    ends = {0: [20, 21, 50], 1: [50]}
    documents = torch.zeros(2, 50, dtype=torch.long)
    documents[0, 20:] = 7
    documents[0, 21:] = 3
    positions = 2 * torch.arange(50) if given else torch.arange(50)  # with gaps: no bias table
    with torch.no_grad():
        packed = model(ids, positions if given else None, documents=documents).logits
        for row, stops in ends.items():
            for start, stop in zip([0, *stops], stops, strict=False):
                part = slice(start, stop)
                alone = model(ids[row : row + 1, part], positions[part]).logits[0]
                torch.testing.assert_close(packed[row, part], alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("embedding", [*MECHANISMS, "random-rope", "learned"])
@pytest.mark.parametrize(("dropout", "packs"), [(0.0, True), (0.3, True), (0.3, False)])
def test_gradient_checkpointing_computes_the_same_with_less_kept(
    embedding: Any, dropout: float, packs: bool
) -> None:
    config = dataclasses.replace(CONFIG, dropout=dropout)
    model = Decoder(config, embedding, train_length=64).train()
    ids, labels = tokens(), next_tokens(tokens())
    documents = (torch.arange(50) // 20).expand(2, 50) if packs else None
    results, kept = [], []
    for wanted in (False, True):
        model.gradient_checkpointing = wanted
        assert model.gradient_checkpointing == wanted
        torch.manual_seed(3)
        sizes: list[int] = []

        def size(tensor: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(size, lambda tensor: tensor):
            loss = model(ids, documents=documents, labels=labels).loss
        kept.append(sum(sizes))
        results.append((loss, gradients(model, loss), torch.rand(3)))
    (loss, expected, after), (again, found, later) = results
    assert torch.equal(loss, again)
    assert torch.equal(after, later)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert kept[1] < 0.5 * kept[0]


def test_gradient_checkpointing_is_for_training_alone() -> None:
    model = Decoder(CONFIG, "rope", train_length=64)
    model.gradient_checkpointing = True
    calls = []
    handle = model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    for training, expected in ((True, 2), (False, 1)):
        calls.clear()
        model.train(training)
        gradients(model, model(tokens(), labels=next_tokens(tokens())).loss)
        assert len(calls) == expected
    handle.remove()
