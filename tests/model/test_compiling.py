"""torch.compile of the whole decoder: what is in its graphs, and that nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model import Decoder, ModelConfig, flex
from fope_lab.model.no_compile import no_compile
from fope_lab.model.seen import Documents

CONFIG = ModelConfig(num_layers=2, num_heads=4, head_dim=16, num_kv_heads=2, vocab_size=90)
LENGTH = 70
LOOPS = ("logsumexp", "softmax", "autograd_function")
"""What only the loops over chunks call, of the loss and of attention with a bias."""


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model: Callable[..., Any]) -> tuple[Callable[..., Any], list[fx.GraphModule]]:
    """The model compiled to graphs that run as they are, and the list that these go to."""
    graphs: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    return torch.compile(model, backend=backend), graphs


def calls(graphs: list[fx.GraphModule], name: str) -> int:
    """How often the graphs, and those within them, call a function whose name has `name` in it."""
    parts = (part for graph in graphs for part in graph.modules())
    nodes = (
        node for part in parts if isinstance(part, fx.GraphModule) for node in part.graph.nodes
    )
    return sum(name in str(node.target) for node in nodes if node.op.startswith("call"))


@pytest.mark.parametrize(
    ("embedding", "documents"),
    [({"type": "fope", "base": 129}, False), ("rope", True), ("kerple", True)],
)
def test_loss_and_gradients_are_the_same(embedding: Any, documents: bool) -> None:
    model = Decoder(CONFIG, embedding, train_length=64).train()
    ids = torch.randint(CONFIG.vocab_size, (2, LENGTH))
    options = {"labels": ids.roll(-1, 1)}
    if documents:
        options["documents"] = (torch.arange(LENGTH) // 30).expand(2, -1)
    called, graphs = compiled(model)
    losses = [one(ids, **options).loss for one in (model, called)]
    torch.testing.assert_close(losses[1], losses[0])
    parameters = list(model.parameters())
    expected, found = (torch.autograd.grad(loss, parameters) for loss in losses)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not any(calls(graphs, name) for name in LOOPS)
    if documents or model.position_embeddings[0].biases:
        assert calls(graphs, "silu") == 1, "the layers share what lies between the loops"
    else:
        assert calls(graphs, "silu") == CONFIG.num_layers
        assert calls(graphs, "scaled_dot_product_attention") == CONFIG.num_layers
        assert len(graphs) == 1, "all but the loss is one graph"


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("embedding", ["kerple", "rope"])
def test_flex_attention_is_compiled_apart(embedding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what makes its table or its blocks, it would be one graph, which does not compile."""
    from torch.nn.attention.flex_attention import flex_attention

    monkeypatch.setattr(flex, "fits", lambda q, k: True)
    monkeypatch.setattr(flex, "OPTIONS", {})
    monkeypatch.setattr(flex, "_kernel", lambda: flex_attention)
    model = Decoder(CONFIG, embedding, train_length=64).eval()
    ids = torch.randint(CONFIG.vocab_size, (2, LENGTH))
    options = {"labels": ids.roll(-1, 1)}
    if not model.position_embeddings[0].biases:
        monkeypatch.setattr(Documents, "of", classmethod(of))
        options["documents"] = (torch.arange(LENGTH) // 30).expand(2, -1)
    called, graphs = compiled(model)
    with torch.no_grad():
        losses = [one(ids, **options).loss for one in (model, called)]
    torch.testing.assert_close(losses[1], losses[0])
    assert calls(graphs, "silu") == 1, "the layers share what lies between"
    assert not calls(graphs, "flex_attention")


def of(cls: type[Documents], numbers: Tensor, embedding: PositionEmbedding) -> Documents:
    """What Documents.of makes on CUDA."""
    return cls(numbers, kernels={})


def test_gradient_checkpointing_is_compiled_too() -> None:
    model = Decoder(CONFIG, "rope", train_length=64).train()
    ids = torch.randint(CONFIG.vocab_size, (2, LENGTH))
    before = model(ids, labels=ids).loss
    model.gradient_checkpointing = True
    called, graphs = compiled(model)
    loss = called(ids, labels=ids).loss
    torch.testing.assert_close(loss, before)
    parameters = list(model.parameters())
    expected, found = (torch.autograd.grad(one, parameters) for one in (before, loss))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert calls(graphs, "checkpoint") == CONFIG.num_layers


def test_what_is_uncompiled_is_called_as_it_is() -> None:
    seen = []

    @no_compile
    def function(x: Tensor, *, add: int) -> Tensor:
        seen.append(type(x))
        return torch.sinh(x) + add

    called, graphs = compiled(lambda x: torch.cos(function(torch.sin(x), add=3)))
    x = torch.randn(4)
    assert torch.equal(called(x), torch.cos(torch.sinh(torch.sin(x)) + 3))
    assert seen == [Tensor]
    assert calls(graphs, "sinh") == 0
    assert calls(graphs, "sin") == calls(graphs, "cos") == 1
    assert function.__name__ == "function"
